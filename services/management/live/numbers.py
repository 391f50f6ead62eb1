"""The ids of entities that changed: events say paths, and consoles over MQTT want ids.

`device` says which number a path has. What it says holds for all devices of a product, and for one
thing otherwise, and is asked for anew after a minute: a product may be deleted and made again.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from libs.common.changes import Changed
from libs.common.contracts.entities import MOST
from libs.common.device_client import DeviceClient
from libs.common.errors import ThingwayError
from libs.common.recent import Recent
from libs.common.things import GENERIC, entity_id, number_of

log = logging.getLogger(__name__)

LIFE = 60.0
"""Seconds for which a number is taken as it was told."""
SOON = 5.0
"""The same where a path has none: devices of the open product get theirs as they report."""
KEPT = 20_000
"""Most products and things whose numbers are kept."""

Owner = tuple[str, str | int]
"""A tenant, with the model of a product or the id of a thing."""


Paths = dict[str, int | None]
"""Numbers by path; None where there is no entity."""


class _Asked(NamedTuple):
    owner: Owner
    paths: Paths
    path: str


class Numbers:
    """Finds ids; one per process."""

    def __init__(self, devices: DeviceClient) -> None:
        self._devices = devices
        self._known: Recent[Owner, tuple[float, Paths]] = Recent(KEPT)
        """With the time until which it holds."""

    async def ids(self, changes: Sequence[Changed]) -> list[list[int]]:
        """The ids of the entities of each change; what there is no entity for has none.

        While `device` is away there are only those that are known.
        """
        owners = list(map(_owner, changes))
        known = list(map(self._paths_of, owners))
        missing: dict[str, dict[str, _Asked]] = defaultdict(dict)
        for change, owner, paths in zip(changes, owners, known, strict=True):
            for key, path in _keys(change):
                if path not in paths:
                    missing[change.tenant][key] = _Asked(owner, paths, path)
                    paths[path] = None  # once is enough, whichever device it is asked for
        for tenant, wanted in missing.items():
            await self._learn(tenant, wanted)
        return [
            [
                entity_id(change.thing.id, number)
                for _, path in _keys(change)
                if (number := paths.get(path)) is not None
            ]
            for change, paths in zip(changes, known, strict=True)
        ]

    def _paths_of(self, owner: Owner) -> Paths:
        """What is known of an owner; it stays with who has asked, also when it is forgotten."""
        until, paths = self._known.get(owner) or (0.0, {})
        if until <= time.monotonic():
            paths = {}
            self._keep(owner, paths, LIFE)
        return paths

    def _keep(self, owner: Owner, paths: Paths, life: float) -> None:
        self._known.put(owner, (time.monotonic() + life, paths))

    async def _learn(self, tenant: str, wanted: dict[str, _Asked]) -> None:
        rest = iter(wanted)
        while keys := list(islice(rest, MOST)):
            try:
                entities = await self._devices.resolve(tenant, keys=keys)
            except ThingwayError as error:
                log.warning("%d entities were not told of: %s", len(keys), error)
                for asked in map(wanted.__getitem__, keys):
                    asked.paths.pop(asked.path, None)
                continue
            found = {entity.key: number_of(entity.id) for entity in entities}
            for key in keys:
                asked = wanted[key]
                asked.paths[asked.path] = found.get(key)
                if key not in found:
                    self._keep(asked.owner, asked.paths, SOON)


def _owner(change: Changed) -> Owner:
    thing = change.thing
    shared = thing.device and thing.model and thing.model != GENERIC
    return change.tenant, thing.model if shared else thing.id


def _keys(change: Changed) -> Iterator[tuple[str, str]]:
    """Keys with the paths below the thing's own."""
    start = len(change.thing.key) + 1
    for key in change.values:
        yield key, key[start:]
