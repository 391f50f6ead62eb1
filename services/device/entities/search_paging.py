"""Cuts a page out of groups, each a walk over devices with listed entities in between."""

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from libs.common.identity.grants import Grants
from services.device.entities.advanced_search import Group, Order
from services.device.entities.search_counts import Pools
from services.device.members.entity import Entity, EntityThing, of_device
from services.device.members.members import Member, MemberSet
from services.device.things.device_queries import DeviceLists
from services.device.things.model import ListedDevice, ModelKey
from services.device.things.visibility import Condition, hint

FEW = 50
"""Most models that a query for devices names."""

Walk = AsyncGenerator[ListedDevice, None]
"""Devices in order."""

Row = tuple[EntityThing, Sequence[Member]]
"""A thing, and those of its members that match, in order."""


@dataclass(frozen=True)
class Devices:
    """The devices of a search: which, and what of their models is wanted."""

    tenant: str
    grants: Grants
    conditions: list[Condition]
    models: Mapping[ModelKey, MemberSet]
    pools: Pools
    all_match: bool
    """Whether all wanted members of every device match: there is no keyword."""


class Outdated(Exception):
    """Devices are not as they were counted a moment ago."""


@dataclass(frozen=True)
class Cut:
    """All that a search found; `sizes` counts the entities of devices by group."""

    order: Order
    listed: Sequence[Entity]
    devices: Devices
    sizes: Counter[Group]
    lately: bool
    """Whether devices may have been counted a moment ago."""

    @property
    def total(self) -> int:
        """How many there are."""
        return self.sizes.total() + len(self.listed)


async def cut_page(lists: DeviceLists, cut: Cut, skip: int, limit: int) -> list[Entity]:
    """Up to `limit` entities behind the first `skip`.

    Raises `Outdated` when they are not as they were counted lately.
    """
    found: list[Entity] = []
    expected = min(limit, cut.total - skip)
    listed: dict[Group, list[Entity]] = defaultdict(list)
    for entity in cut.listed:
        listed[cut.order.group_of(entity.member)].append(entity)
    for group in cut.order.sorted_groups(cut.sizes.keys() | listed.keys()):
        rows = listed.get(group, [])
        size = cut.sizes[group] + len(rows)
        if skip >= size:
            skip -= size
            continue
        found += await _Part(lists, cut, group).read(rows, skip, limit - len(found))
        if len(found) == limit:
            break
        skip = 0
    if cut.lately and len(found) < expected:
        raise Outdated
    return found


class _Part:
    """One group of a search."""

    def __init__(self, lists: DeviceLists, cut: Cut, group: Group) -> None:
        self._lists = lists
        self._order = cut.order
        self._devices = cut.devices
        self._lately = cut.lately
        self._group = group
        self._pools = cut.devices.pools.groups.get(group, {})

    async def read(self, listed: Sequence[Entity], skip: int, limit: int) -> list[Entity]:
        """Up to `limit` entities behind the first `skip`."""
        walk, skip = self._walk(skip, limit, alone=not listed)
        found: list[Entity] = []
        async with aclosing(self._merged(self._rows(listed), walk)) as rows:
            async for thing, members in rows:
                if skip >= len(members):
                    skip -= len(members)
                    continue
                found += (Entity(thing, member) for member in members[skip:])
                skip = 0
                if len(found) >= limit:
                    break
        return found[:limit]

    def _walk(self, skip: int, limit: int, *, alone: bool) -> tuple[Walk | None, int]:
        """The walk over devices, and how many entities are left to skip in it.

        When all devices have equally many, MongoDB passes over those that nobody wants.
        """
        if not self._pools:
            return None, skip
        models = self._pools.keys()
        conditions, only_these = list(self._devices.conditions), True
        if models != self._devices.models.keys():
            only_these = len(models) <= FEW
            conditions += [of_models(models)] if only_these else []
        sizes = {len(members) for members in self._pools.values()}
        passed = 0
        expected = (skip + limit) // min(sizes) + 1
        if self._order.by_integration:
            return self._by_integration(conditions, expected), skip
        if alone and only_these and len(sizes) == 1 and self._devices.all_match:
            passed, skip = divmod(skip, min(sizes))
            expected = (skip + limit) // min(sizes) + 1
        return self._walk_devices(conditions, passed, expected), skip

    def _walk_devices(self, conditions: list[Condition], skip: int, expected: int) -> Walk:
        order = self._order.stored()
        return self._lists.walk(
            self._devices.tenant,
            conditions,
            order,
            skip=skip,
            expected=expected,
            hint=hint(self._devices.grants, order),
        )

    async def _by_integration(self, conditions: list[Condition], expected: int) -> Walk:
        """Walk over the devices of one integration after the other, in the order of their names."""
        found = await self._lists.integrations(self._devices.tenant)
        for integration in self._order.sorted_integrations(found):
            one = [*conditions, {"integration": integration}]
            async with aclosing(self._walk_devices(one, 0, expected)) as devices:
                async for device in devices:
                    yield device

    def _rows(self, listed: Sequence[Entity]) -> list[Row]:
        """Listed entities by thing, in order."""
        things: dict[int, tuple[EntityThing, list[Member]]] = {}
        for entity in listed:
            things.setdefault(entity.thing.id, (entity.thing, []))[1].append(entity.member)
        rows: list[Row] = [
            (thing, self._order.sorted_members(some)) for thing, some in things.values()
        ]
        rows.sort(key=lambda row: self._order.place(row[0]), reverse=self._order.falling)
        return rows

    async def _merged(self, listed: Sequence[Row], walk: Walk | None) -> AsyncGenerator[Row, None]:
        """Listed things and devices, in one order."""
        place, falling, at = self._order.place, self._order.falling, 0
        if walk is not None:
            async with aclosing(self._of_devices(walk)) as rows:
                async for row in rows:
                    here = place(row[0])
                    while at < len(listed) and (place(listed[at][0]) > here) == falling:
                        yield listed[at]
                        at += 1
                    yield row
        for row in listed[at:]:
            yield row

    async def _of_devices(self, walk: Walk) -> AsyncGenerator[Row, None]:
        """Devices in order, those that have entities that match."""
        devices = self._devices
        async with aclosing(walk) as found:
            async for device in found:
                model = device.model_key
                if self._lately and model not in devices.models:
                    raise Outdated
                if model not in self._pools:
                    continue
                thing = of_device(device, devices.models[model])
                members = devices.pools.matches(self._group, model, thing)
                if members:
                    yield thing, members


def of_models(models: Collection[ModelKey]) -> Condition:
    """The condition that a device is of one of these models."""
    return {
        "$or": [
            {
                "model": one.model,
                "entityNames": one.names or None,
                **({"tslVersion": one.version} if one.version else {"shape": one.shape or None}),
            }
            for one in models
        ]
    }
