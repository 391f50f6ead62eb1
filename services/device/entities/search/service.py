"""Searches all entities that a user sees."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from libs.common.http.console import Page
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from services.device.entities.schemas import DeviceGroup, SearchEntities, ShownEntity
from services.device.entities.search.counting import DeviceCounts, Pools
from services.device.entities.search.listed import Asked, Listed
from services.device.entities.search.matching import Keyword, MemberFilter
from services.device.entities.search.order import Order
from services.device.entities.search.page import FEW, Cut, Devices, cut_page, of_models
from services.device.entities.service import shown_entity
from services.device.entities.tags.service import EntityTags
from services.device.groups.store import GroupStore
from services.device.integrations.own import ThingMaker
from services.device.members.directory import EntityDirectory
from services.device.members.entity import Entity
from services.device.members.models import Models
from services.device.things.integrations import Integrations
from services.device.things.model import ModelKey
from services.device.things.pages import Condition
from services.device.things.seen import seen, seen_in_parts
from services.device.things.store import DeviceStore

MOST = 10_000
"""Most entities of one answer, whatever is asked for."""


class EntitySearch:
    """Searches on behalf of users."""

    def __init__(
        self,
        devices: DeviceStore,
        models: Models,
        directory: EntityDirectory,
        grants: GrantReader,
        integrations: Integrations,
        maker: ThingMaker,
        groups: GroupStore,
        tags: EntityTags,
    ) -> None:
        self._devices = devices
        self._models = models
        self._directory = directory
        self._grants = grants
        self._integrations = integrations
        self._maker = maker
        self._groups = groups
        self._tags = tags

    async def search(
        self, principal: Principal, body: SearchEntities
    ) -> list[ShownEntity] | Page[ShownEntity]:
        """The entities that match, in order: a page when one is asked for, else a list.

        There are at most `MOST` in either; a page says in `page_size` how many it cuts by.
        """
        await self._maker.complete(principal.tenant)
        integrations = await self._integrations.known()
        grants = await self._grants.of(principal)
        keyword = Keyword(body.keyword, integrations) if body.keyword else None
        asked = Asked(principal, grants, body, Order.of(body), MemberFilter(body), keyword)
        cut = await self._cut(asked, await Listed(self._directory, asked).find())
        size = min(body.size, MOST) if body.paged else MOST
        found = await cut_page(self._devices, cut, (body.number - 1) * size, size)
        rows = [shown_entity(entity, integrations) for entity in found]
        await self._mark(asked.tenant, found, rows)
        if not body.paged:
            return rows
        return Page(page_size=size, page_number=body.number, total=cut.total, content=rows)

    async def _mark(
        self, tenant: str, entities: Sequence[Entity], rows: Sequence[ShownEntity]
    ) -> None:
        """Add the groups of devices, and the tags."""
        groups = {one.thing.group for one in entities if one.thing.group is not None}
        names = await self._groups.names(tenant, groups) if groups else {}
        tags = await self._tags.of(tenant, [one.id for one in entities])
        for entity, row in zip(entities, rows, strict=True):
            group = entity.thing.group
            if group is not None and group in names:
                row.device_group = DeviceGroup(str(group), names[group])
            row.entity_tags = tags.get(entity.id) or None

    async def _cut(self, asked: Asked, listed: Sequence[Entity]) -> Cut:
        """All that there is: the listed entities, and those of devices that are counted."""
        body = asked.body
        none = body.customized or body.entity_ids is not None
        visible = [] if none else [[part] for part in seen_in_parts(asked.grants)]
        whole: list[Condition] = []
        integrations: Sequence[str] = ()
        if asked.keyword is not None and visible:
            integrations = await self._devices.integrations(asked.tenant)
            whole = asked.keyword.devices(integrations)
        everyone, matching = await asyncio.gather(
            self._count(asked.tenant, visible),
            self._count(asked.tenant, _each(visible, whole)),
        )
        models = await self._models.of(asked.tenant, everyone.keys())
        wanted = {model: asked.wants(members.members) for model, members in models.items()}
        pools = Pools(wanted, asked.order, asked.keyword)
        tails = pools.tails() if whole else ()
        ends = {tail: Keyword.devices_ending(head, integrations) for head, tail in tails}
        parts = [[*part, {"$nor": whole}] for part in visible]
        ending = [
            (tail, await self._count(asked.tenant, [[*part, end] for part in parts]))
            for tail, end in ends.items()
        ]
        conditions = [seen(asked.grants)]
        if whole:
            conditions += _matching_any([*whole, *ends.values()], pools, everyone)
        devices = Devices(asked.tenant, asked.grants, conditions, models, pools, not whole)
        return Cut(
            asked.order, listed, devices, pools.sizes(DeviceCounts(everyone, matching, ending))
        )

    async def _count(self, tenant: str, parts: Sequence[Sequence[Condition]]) -> Counter[ModelKey]:
        """Devices by model, over the sum of `parts`, each of which is a list of conditions."""
        found: Counter[ModelKey] = Counter()
        counts = await asyncio.gather(*(self._devices.count_models(tenant, part) for part in parts))
        for models in counts:
            found.update(models)
        return found


def _each(parts: Sequence[list[Condition]], either: Sequence[Condition]) -> list[list[Condition]]:
    """Parts of the devices that meet any of `either`, so that no device is in two of them.

    MongoDB walks an index for each condition; for all of them in one it would not.
    """
    return [
        [*part, one, *([{"$nor": list(either[:at])}] if at else [])]
        for part in parts
        for at, one in enumerate(either)
    ]


def _matching_any(
    conditions: list[Condition], pools: Pools, counts: Mapping[ModelKey, int]
) -> list[Condition]:
    """The condition that leaves out devices without an entity that the keyword matches."""
    own = pools.own_models()
    if len(own) > FEW or own == counts.keys():
        return []
    return [{"$or": [*conditions, *([of_models(own)] if own else [])]}]
