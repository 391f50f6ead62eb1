"""Ids of changed entities: events have paths, but consoles with MQTT need ids.

`device` returns the number of a path. All devices of a product have the same number for a path;
other things have their own numbers. Numbers are requested again after a minute, because a product
may be deleted and created again.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from libs.common.changes import EntityChange
from libs.common.contracts.entities import MAX_KEYS
from libs.common.device_client import DeviceClient
from libs.common.errors import ThingwayError
from libs.common.lru_cache import LruCache
from libs.common.things import GENERIC_MODEL, entity_id, entity_number

log = logging.getLogger(__name__)

CACHE_SECONDS = 60.0
"""Seconds for which a number is cached."""
MISSING_CACHE_SECONDS = 5.0
"""Seconds for which a missing number is cached: devices of the open product get numbers when they
report."""
CACHE_SIZE = 20_000
"""Products and things whose numbers are cached."""

CacheKey = tuple[str, str | int]
"""A tenant, with the model of a product or the id of a thing."""


Paths = dict[str, int | None]
"""Numbers by path; None without an entity."""


class _Missing(NamedTuple):
    cache_key: CacheKey
    paths: Paths
    path: str


class EntityIds:
    """Finds the ids of entities; one instance per process."""

    def __init__(self, devices: DeviceClient) -> None:
        self._devices = devices
        self._known: LruCache[CacheKey, tuple[float, Paths]] = LruCache(CACHE_SIZE)
        """Numbers with the time until which they are cached."""

    async def ids(self, changes: Sequence[EntityChange]) -> list[list[int]]:
        """Return the ids of the entities of each change; paths without entities have none.

        While `device` does not answer, only cached ids are returned.
        """
        cache_keys = list(map(_cache_key, changes))
        known_paths = list(map(self._paths_of, cache_keys))
        missing: dict[str, dict[str, _Missing]] = defaultdict(dict)
        for change, cache_key, paths in zip(changes, cache_keys, known_paths, strict=True):
            for key, path in _keys(change):
                if path not in paths:
                    missing[change.tenant][key] = _Missing(cache_key, paths, path)
                    paths[path] = None  # one request suffices for all devices of a product
        for tenant, missing_keys in missing.items():
            await self._learn(tenant, missing_keys)
        return [
            [
                entity_id(change.thing.id, number)
                for _, path in _keys(change)
                if (number := paths.get(path)) is not None
            ]
            for change, paths in zip(changes, known_paths, strict=True)
        ]

    def _paths_of(self, cache_key: CacheKey) -> Paths:
        """Return the known paths of a key, which the caller may fill after they expired."""
        until, paths = self._known.get(cache_key) or (0.0, {})
        if until <= time.monotonic():
            paths = {}
            self._keep(cache_key, paths, CACHE_SECONDS)
        return paths

    def _keep(self, cache_key: CacheKey, paths: Paths, life: float) -> None:
        self._known.put(cache_key, (time.monotonic() + life, paths))

    async def _learn(self, tenant: str, missing: dict[str, _Missing]) -> None:
        rest = iter(missing)
        while keys := list(islice(rest, MAX_KEYS)):
            try:
                entities = await self._devices.resolve(tenant, keys=keys)
            except ThingwayError as error:
                log.warning("the ids of %d entities could not be read: %s", len(keys), error)
                for entry in map(missing.__getitem__, keys):
                    entry.paths.pop(entry.path, None)
                continue
            numbers_by_key = {entity.key: entity_number(entity.id) for entity in entities}
            for key in keys:
                entry = missing[key]
                entry.paths[entry.path] = numbers_by_key.get(key)
                if key not in numbers_by_key:
                    self._keep(entry.cache_key, entry.paths, MISSING_CACHE_SECONDS)


def _cache_key(change: EntityChange) -> CacheKey:
    thing = change.thing
    shared = thing.device and thing.model and thing.model != GENERIC_MODEL
    return change.tenant, thing.model if shared else thing.id


def _keys(change: EntityChange) -> Iterator[tuple[str, str]]:
    """Yield keys, with the paths below the thing's key."""
    start = len(change.thing.key) + 1
    for key in change.values:
        yield key, key[start:]
