"""Searches all entities that a user sees."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from libs.common.clock import to_ms
from libs.common.http.console import Page, PageRequest, ids_of
from libs.common.http.streaming import Streamed, begun_with, each, in_parts
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import Integrations, ShownIntegration
from libs.common.things import entity_id
from services.device.entities.advanced_search import AdvancedFilter, Names, Order, device_of
from services.device.entities.schemas import (
    AdvancedSearch,
    DeviceGroup,
    SearchEntities,
    ShownEntity,
)
from services.device.entities.search_counts import Asked, DeviceCounts, Listed, Pools
from services.device.entities.search_filters import Keyword, MemberFilter, TextFilter
from services.device.entities.search_paging import FEW, Cut, Devices, Outdated, cut_page, of_models
from services.device.entities.service import (
    VALUES_TOGETHER,
    ValueReader,
    latest_text,
    plain,
    shown_entity,
)
from services.device.entities.tags import EntityTags
from services.device.members.device_keys import KEY_DESCRIPTION, KEY_NAME, FirstKeys
from services.device.members.directory import EntityDirectory, Models
from services.device.members.entity import Entity
from services.device.members.integration_things import IntegrationThings
from services.device.things.device_queries import DeviceLists
from services.device.things.groups import GroupStore
from services.device.things.model import Device, ModelKey
from services.device.things.visibility import NOTHING, Condition, seen, seen_in_parts

MOST_WITH_EVENTS = 200
"""Rows of a page in which events have their last outputs: each kind is looked up by itself."""
MOST = 10_000
"""Most entities of one answer, whatever is asked for."""
ShownIntegrations = Mapping[str, ShownIntegration]


@dataclass(frozen=True)
class EntitySearch:
    """Searches on behalf of users."""

    devices: DeviceLists
    models: Models
    directory: EntityDirectory
    grants: GrantReader
    integrations: Integrations
    integration_things: IntegrationThings
    groups: GroupStore
    tags: EntityTags
    values: ValueReader
    first_keys: FirstKeys

    async def search(
        self, principal: Principal, body: SearchEntities
    ) -> Streamed[list[ShownEntity] | Page[ShownEntity]]:
        """Stream the entities that match, in order: a page when one is asked for, else a list.

        There are at most `MOST` in either; a page says in `page_size` how many it cuts by.
        """
        await self.integration_things.complete(principal.tenant)
        integrations = await self.integrations.known()
        page = await self._page(await self._asked(principal, body, integrations), body)
        show = partial(self._shown, principal.tenant, integrations)
        return Streamed(
            replace(page, content=[]) if body.paged else [], in_parts(each(page.content), show)
        )

    async def search_advanced(
        self, principal: Principal, body: AdvancedSearch
    ) -> Streamed[Page[ShownEntity]]:
        """Stream the entities that meet a filter of each column, with their latest values."""
        await self.integration_things.complete(principal.tenant)
        integrations = await self.integrations.known()
        names = Names(principal.tenant, integrations, self.groups, self.tags)
        found = await AdvancedFilter.from_columns(body.entity_filter or {}, names)
        ids = found.ids
        if found.keys is not None:
            known = await self.directory.by_keys(principal.tenant, found.keys)
            named = {entity.id for entity in known.values()}
            ids = sorted(named if ids is None else named & set(ids))
        asked = Asked(
            principal=principal,
            grants=await self.grants.of(principal),
            order=Order.from_request(body, _names(integrations)),
            wants=found.wants,
            keyword=found.key_test,
            negated=found.negated,
            conditions=found.conditions,
            fits=found.fits,
            ids=ids,
            without=await self._without(principal.tenant, found),
        )
        page = await self._page(asked, body)
        with_events = len(page.content) <= MOST_WITH_EVENTS

        async def show(entities: Sequence[Entity]) -> list[ShownEntity]:
            rows = await self._shown(principal.tenant, integrations, entities)
            await self._add_values(entities, rows, with_events=with_events)
            return rows

        rows = in_parts(each(page.content), show, VALUES_TOGETHER)
        first = await self._key(principal, body, integrations)
        return Streamed(replace(page, content=[]), begun_with(first, rows))

    async def _key(
        self, principal: Principal, body: AdvancedSearch, integrations: ShownIntegrations
    ) -> list[ShownEntity]:
        """A row with the first key of a device, for who added it; consoles show it nowhere else.

        Our own console shows keys at the device.
        """
        device_id = device_of(body) if body.number == 1 else None
        if device_id is None or principal.uses_own_console:
            return []
        found = await self.first_keys.find(principal, device_id)
        return [] if found is None else [_key_row(*found, integrations)]

    async def _without(self, tenant: str, found: AdvancedFilter) -> frozenset[int]:
        if found.key_but is None:
            return found.without
        known = await self.directory.by_keys(tenant, [found.key_but])
        return found.without.union(entity.id for entity in known.values())

    async def _asked(
        self, principal: Principal, body: SearchEntities, integrations: ShownIntegrations
    ) -> Asked:
        ids = None if body.entity_ids is None else ids_of(body.entity_ids)
        if body.entity_keys is not None:
            known = await self.directory.by_keys(principal.tenant, body.entity_keys)
            named = {entity.id for entity in known.values()}
            ids = sorted(named if ids is None else named & set(ids))
        keyword = None
        if body.keyword:
            keyword = Keyword(body.keyword, integrations, keys=not body.not_scan_key)
        source = TextFilter.of_source(body.entity_source_name, integrations)
        return Asked(
            principal=principal,
            grants=await self.grants.of(principal),
            order=Order.from_request(body, _names(integrations)),
            wants=MemberFilter(body),
            keyword=keyword,
            conditions=source.conditions,
            fits=source.fits,
            ids=ids,
            customized=body.customized,
        )

    async def _page(self, asked: Asked, body: PageRequest) -> Page[Entity]:
        listed = Listed(self.directory, asked)
        lost = await listed.counted() if asked.without and asked.ids is None else []
        rows = await listed.find()
        size = min(body.size, MOST) if body.paged else MOST
        skip = (body.number - 1) * size
        cut = await self._cut(asked, rows, lost, anew=asked.keyword is not None)
        try:
            found = await cut_page(self.devices, cut, skip, size)
        except Outdated:
            cut = await self._cut(asked, rows, lost, anew=True)
            found = await cut_page(self.devices, cut, skip, size)
        return Page(page_size=size, page_number=body.number, total=cut.total, content=found)

    async def _shown(
        self, tenant: str, integrations: ShownIntegrations, entities: Sequence[Entity]
    ) -> list[ShownEntity]:
        """Rows, with the groups of devices and the tags."""
        rows = [shown_entity(entity, integrations) for entity in entities]
        groups = {one.thing.group for one in entities if one.thing.group is not None}
        names = await self.groups.names(tenant, groups) if groups else {}
        tags = await self.tags.find_tags(tenant, [one.id for one in entities])
        for entity, row in zip(entities, rows, strict=True):
            group = entity.thing.group
            if group is not None and group in names:
                row.device_group = DeviceGroup(str(group), names[group])
            row.entity_tags = tags.get(entity.id) or None
        return rows

    async def _add_values(
        self, entities: Sequence[Entity], rows: Sequence[ShownEntity], *, with_events: bool
    ) -> None:
        of_properties = [one for one in entities if one.member.type == "PROPERTY"]
        latest = await self.values.reported(of_properties)
        known = {"PROPERTY": latest}
        if with_events:
            known["EVENT"] = await self.values.events(entities)
        for entity, row in zip(entities, rows, strict=True):
            if entity.member.type in known:
                entries = known[entity.member.type].get(entity.thing.id, {})
                row.entity_latest_value = latest_text(entity, plain(entries))

    async def _cut(
        self, asked: Asked, listed: Sequence[Entity], lost: Sequence[Entity], *, anew: bool
    ) -> Cut:
        """All that there is: the listed entities, and those of devices that are counted.

        `lost` are counted, and are not wanted.
        """
        none = asked.customized or asked.ids is not None
        visible = (
            [] if none else [[part, *asked.conditions] for part in seen_in_parts(asked.grants)]
        )
        whole: list[Condition] = []
        integrations: Sequence[str] = ()
        keyed = asked.keyword is not None and bool(visible)
        if asked.keyword is not None and visible:
            integrations = await self.devices.integrations(asked.tenant)
            whole = asked.keyword.devices(integrations)
        everyone, matching = await asyncio.gather(
            self._count(asked.tenant, visible, anew=anew),
            self._count(asked.tenant, _each(visible, whole), anew=anew),
        )
        models = await self.models.of(asked.tenant, everyone.keys())
        wanted = {model: asked.wants(members) for model, members in models.items()}
        pools = Pools(wanted, asked.order, asked.keyword, negated=asked.negated, without=lost)
        ends: dict[str, Condition] = {}
        if asked.keyword is not None and keyed:
            ends = {
                tail: asked.keyword.devices_ending(head, integrations)
                for head, tail in pools.tails()
            }
        others = [{"$nor": whole}] if whole else []
        parts = [[*part, *others] for part in visible]
        ending = [
            (tail, await self._count(asked.tenant, [[*part, end] for part in parts], anew=anew))
            for tail, end in ends.items()
        ]
        conditions = [seen(asked.grants), *asked.conditions]
        if keyed and not asked.negated:
            conditions += _matching_any([*whole, *ends.values()], pools, everyone)
        devices = Devices(
            asked.tenant, asked.grants, conditions, models, pools, not keyed and not lost
        )
        sizes = pools.sizes(DeviceCounts(everyone, matching, ending))
        return Cut(asked.order, listed, devices, sizes, lately=not anew)

    async def _count(
        self, tenant: str, parts: Sequence[Sequence[Condition]], *, anew: bool
    ) -> Counter[ModelKey]:
        """Devices by model, over the sum of `parts`, each of which is a list of conditions."""
        found: Counter[ModelKey] = Counter()
        counts = await asyncio.gather(
            *(self.devices.count_models(tenant, part, anew=anew) for part in parts)
        )
        for models in counts:
            found.update(models)
        return found


def _key_row(device: Device, key: str, integrations: ShownIntegrations) -> ShownEntity:
    """Its id is that of no entity: numbers of members begin at 1."""
    integration = integrations.get(device.integration)
    return ShownEntity(
        entity_id=str(entity_id(device.id, 0)),
        entity_key=key,
        entity_name=KEY_NAME,
        entity_type="PROPERTY",
        entity_value_type="STRING",
        entity_value_attribute={},
        entity_access_mod="R",
        entity_description=KEY_DESCRIPTION,
        entity_is_customized=False,
        entity_created_at=to_ms(device.created_at),
        entity_updated_at=to_ms(device.updated_at),
        device_id=str(device.id),
        device_name=device.name,
        integration_name=integration.name if integration else None,
        entity_value_store_mod="HISTORY",
        entity_latest_value=key,
    )


def _names(integrations: ShownIntegrations) -> dict[str, str]:
    return {one: known.name or "" for one, known in integrations.items()}


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
    either = [*conditions, *([of_models(own)] if own else [])]
    return [{"$or": either}] if either else [NOTHING]
