"""Pages of a search: groups, each a walk over devices merged with listed entities."""

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from libs.common.identity.grants import Grants
from services.device.entities.advanced_search import EntityOrder, GroupKey
from services.device.entities.search_counts import SelectedMembers
from services.device.members.entity import Entity, EntityThing, thing_from_device
from services.device.members.members import Member, MemberSet
from services.device.things.device_queries import DeviceQueries
from services.device.things.model import ListedDevice, MemberSetKey
from services.device.things.visibility import Condition, sort_index_hint

MAX_NAMED_MEMBER_SETS = 50
"""Maximum member sets that a query for devices names."""

DeviceIterator = AsyncGenerator[ListedDevice, None]
"""Yields the devices of a search in its order."""

ThingMembers = tuple[EntityThing, Sequence[Member]]
"""A thing and its matching members, in order."""


@dataclass(frozen=True)
class DeviceSelection:
    """Devices of a search, and the wanted members of their member sets."""

    tenant: str
    grants: Grants
    conditions: list[Condition]
    member_sets: Mapping[MemberSetKey, MemberSet]
    selected_members: SelectedMembers
    all_match: bool
    """Whether all selected members of each device match: no keyword and no excluded entity."""


class OutdatedCounts(Exception):
    """Raised when devices have changed since they were counted."""


@dataclass(frozen=True)
class CountedSearch:
    """A search with its counts; `sizes` are the numbers of device entities by group."""

    order: EntityOrder
    listed: Sequence[Entity]
    devices: DeviceSelection
    sizes: Counter[GroupKey]
    may_be_outdated: bool
    """Whether the counts come from a cache."""

    @property
    def total(self) -> int:
        """Return how many entities match."""
        return self.sizes.total() + len(self.listed)


async def read_page(
    queries: DeviceQueries, result: CountedSearch, skip: int, limit: int
) -> list[Entity]:
    """Return up to `limit` entities after the first `skip`.

    Raises `OutdatedCounts` when cached counts turn out to be wrong.
    """
    entities: list[Entity] = []
    expected = min(limit, result.total - skip)
    listed: dict[GroupKey, list[Entity]] = defaultdict(list)
    for entity in result.listed:
        listed[result.order.group_key(entity.member)].append(entity)
    for group in result.order.sorted_groups(result.sizes.keys() | listed.keys()):
        rows = listed.get(group, [])
        size = result.sizes[group] + len(rows)
        if skip >= size:
            skip -= size
            continue
        entities += await _GroupReader(queries, result, group).read(
            rows, skip, limit - len(entities)
        )
        if len(entities) == limit:
            break
        skip = 0
    if result.may_be_outdated and len(entities) < expected:
        raise OutdatedCounts
    return entities


class _GroupReader:
    """Reads one group of a search."""

    def __init__(self, queries: DeviceQueries, result: CountedSearch, group: GroupKey) -> None:
        self._queries, self._group = queries, group
        self._order, self._devices = result.order, result.devices
        self._may_be_outdated = result.may_be_outdated
        self._members_by_set = result.devices.selected_members.groups.get(group, {})

    async def read(self, listed: Sequence[Entity], skip: int, limit: int) -> list[Entity]:
        """Return up to `limit` entities after the first `skip`."""
        walk, skip = self._start_walk(skip, limit, alone=not listed)
        entities: list[Entity] = []
        async with aclosing(self._merge_rows(self._group_by_thing(listed), walk)) as rows:
            async for thing, members in rows:
                if skip >= len(members):
                    skip -= len(members)
                    continue
                entities += (Entity(thing, member) for member in members[skip:])
                skip = 0
                if len(entities) >= limit:
                    break
        return entities[:limit]

    def _start_walk(
        self, skip: int, limit: int, *, alone: bool
    ) -> tuple[DeviceIterator | None, int]:
        """Return the walk over devices, and how many entities to skip in it.

        When all devices have equally many entities, MongoDB skips whole devices.
        """
        if not self._members_by_set:
            return None, skip
        member_sets = self._members_by_set.keys()
        conditions, only_these = list(self._devices.conditions), True
        if member_sets != self._devices.member_sets.keys():
            only_these = len(member_sets) <= MAX_NAMED_MEMBER_SETS
            conditions += [member_sets_condition(member_sets)] if only_these else []
        sizes = {len(members) for members in self._members_by_set.values()}
        passed = 0
        expected = (skip + limit) // min(sizes) + 1
        if self._order.is_by_integration:
            return self._walk_by_integration(conditions, expected), skip
        if alone and only_these and len(sizes) == 1 and self._devices.all_match:
            passed, skip = divmod(skip, min(sizes))
            expected = (skip + limit) // min(sizes) + 1
        return self._walk_devices(conditions, passed, expected), skip

    def _walk_devices(
        self, conditions: list[Condition], skip: int, expected: int
    ) -> DeviceIterator:
        order = self._order.stored_order()
        return self._queries.iterate(
            self._devices.tenant,
            conditions,
            order,
            skip=skip,
            expected=expected,
            hint=sort_index_hint(self._devices.grants, order),
        )

    async def _walk_by_integration(
        self, conditions: list[Condition], expected: int
    ) -> DeviceIterator:
        """Walk over the devices of each integration, in the order of names."""
        integrations = await self._queries.list_integrations(self._devices.tenant)
        for integration in self._order.sorted_integrations(integrations):
            narrowed = [*conditions, {"integration": integration}]
            async with aclosing(self._walk_devices(narrowed, 0, expected)) as devices:
                async for device in devices:
                    yield device

    def _group_by_thing(self, listed: Sequence[Entity]) -> list[ThingMembers]:
        """Return listed entities by thing, in order."""
        things: dict[int, tuple[EntityThing, list[Member]]] = {}
        for entity in listed:
            things.setdefault(entity.thing.id, (entity.thing, []))[1].append(entity.member)
        rows: list[ThingMembers] = [
            (thing, self._order.sorted_members(members)) for thing, members in things.values()
        ]
        rows.sort(key=lambda row: self._order.sort_key(row[0]), reverse=self._order.is_descending)
        return rows

    async def _merge_rows(
        self, listed: Sequence[ThingMembers], walk: DeviceIterator | None
    ) -> AsyncGenerator[ThingMembers, None]:
        """Yield listed things and devices in one order."""
        sort_key, is_descending = self._order.sort_key, self._order.is_descending
        next_listed = 0
        if walk is not None:
            async with aclosing(self._iterate_devices(walk)) as rows:
                async for row in rows:
                    device_key = sort_key(row[0])
                    while (
                        next_listed < len(listed)
                        and (sort_key(listed[next_listed][0]) > device_key) == is_descending
                    ):
                        yield listed[next_listed]
                        next_listed += 1
                    yield row
        for row in listed[next_listed:]:
            yield row

    async def _iterate_devices(self, walk: DeviceIterator) -> AsyncGenerator[ThingMembers, None]:
        """Yield devices with matching members, in order."""
        devices = self._devices
        async with aclosing(walk) as found:
            async for device in found:
                key = device.member_set_key
                if self._may_be_outdated and key not in devices.member_sets:
                    raise OutdatedCounts
                if key not in self._members_by_set:
                    continue
                thing = thing_from_device(device, devices.member_sets[key])
                members = devices.selected_members.matching_members(self._group, key, thing)
                if members:
                    yield thing, members


def member_sets_condition(member_sets: Collection[MemberSetKey]) -> Condition:
    """Return the condition that a device has one of these member sets."""
    return {
        "$or": [
            {
                "model": key.model,
                "entityNames": key.names or None,
                **({"tslVersion": key.version} if key.version else {"shape": key.shape or None}),
            }
            for key in member_sets
        ]
    }
