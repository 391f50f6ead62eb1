"""Ids of changed entities: events have paths, but consoles with MQTT need ids.

The id of an entity consists of the id of its thing and the number of its path, which `device`
returns. All devices of a product have the same number for a path; other things have their own
numbers. Numbers are requested again after a minute, because a product may be deleted and created
again.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from libs.common.changes import EntityChange
from libs.common.contracts.entities import MAX_RESOLVED_KEYS
from libs.common.device_client import DeviceClient
from libs.common.errors import ThingwayError
from libs.common.lru_cache import LruCache
from libs.common.things import GENERIC_MODEL, entity_id, get_member_number

log = logging.getLogger(__name__)

CACHE_SECONDS = 60.0
"""Seconds for which a number is cached."""
MISSING_NUMBER_CACHE_SECONDS = 5.0
"""Seconds for which a missing number is cached: devices of the product `generic` get numbers when
they report."""
MAX_CACHED_SCOPES = 20_000
"""Maximum products and things whose numbers are cached."""

EntityNumberScope = tuple[str, str | int]
"""A tenant, with the model of a product whose devices share numbers, or with a thing's id."""


EntityNumbersByPath = dict[str, int | None]
"""Entity numbers by path; None for a path without an entity."""


class _MissingEntityNumber(NamedTuple):
    scope: EntityNumberScope
    paths: EntityNumbersByPath
    path: str


class EntityIds:
    """Finds the ids of entities; one instance per process."""

    def __init__(self, devices: DeviceClient) -> None:
        self._devices = devices
        self._known: LruCache[EntityNumberScope, tuple[float, EntityNumbersByPath]] = LruCache(
            MAX_CACHED_SCOPES
        )
        """By scope: the monotonic time until which numbers are cached, and the numbers."""

    async def find_ids(self, changes: Sequence[EntityChange]) -> list[list[int]]:
        """Return for each change the ids of its entities; values without an entity are left out.

        While `device` does not answer, only cached ids are returned.
        """
        scopes = list(map(_number_scope, changes))
        known_paths = list(map(self._cached_numbers, scopes))
        missing: dict[str, dict[str, _MissingEntityNumber]] = defaultdict(dict)
        for change, scope, paths in zip(changes, scopes, known_paths, strict=True):
            for key, path in _keys_and_paths(change):
                if path not in paths:
                    missing[change.tenant][key] = _MissingEntityNumber(scope, paths, path)
                    paths[path] = None  # one request suffices for all devices of a product
        for tenant, missing_keys in missing.items():
            await self._request_missing(tenant, missing_keys)
        return [
            [
                entity_id(change.thing.id, number)
                for _, path in _keys_and_paths(change)
                if (number := paths.get(path)) is not None
            ]
            for change, paths in zip(changes, known_paths, strict=True)
        ]

    def _cached_numbers(self, scope: EntityNumberScope) -> EntityNumbersByPath:
        """Return the cached numbers of a scope; empty if expired.

        The caller adds missing numbers.
        """
        until, paths = self._known.get(scope) or (0.0, {})
        if until <= time.monotonic():
            paths = {}
            self._cache_numbers(scope, paths, CACHE_SECONDS)
        return paths

    def _cache_numbers(
        self, scope: EntityNumberScope, numbers: EntityNumbersByPath, cache_seconds: float
    ) -> None:
        self._known.put(scope, (time.monotonic() + cache_seconds, numbers))

    async def _request_missing(self, tenant: str, missing: dict[str, _MissingEntityNumber]) -> None:
        rest = iter(missing)
        while keys := list(islice(rest, MAX_RESOLVED_KEYS)):
            try:
                entities = await self._devices.resolve(tenant, keys=keys)
            except ThingwayError as error:
                log.warning("the ids of %d entities could not be read: %s", len(keys), error)
                for entry in map(missing.__getitem__, keys):
                    entry.paths.pop(entry.path, None)
                continue
            numbers_by_key = {entity.key: get_member_number(entity.id) for entity in entities}
            for key in keys:
                entry = missing[key]
                entry.paths[entry.path] = numbers_by_key.get(key)
                if key not in numbers_by_key:
                    self._cache_numbers(entry.scope, entry.paths, MISSING_NUMBER_CACHE_SECONDS)


def _number_scope(change: EntityChange) -> EntityNumberScope:
    thing = change.thing
    shared = thing.device and thing.model and thing.model != GENERIC_MODEL
    return change.tenant, thing.model if shared else thing.id


def _keys_and_paths(change: EntityChange) -> Iterator[tuple[str, str]]:
    """Yield the key of each entity, and its path below the key of the thing."""
    start = len(change.thing.key) + 1
    for key in change.values:
        yield key, key[start:]
