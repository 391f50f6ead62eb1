"""Search of entities that a user may see."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from libs.common.clock import to_ms
from libs.common.http.console import Page, PageRequest, distinct_ids
from libs.common.http.streaming import StreamedAnswer, chain_rows, iterate_rows, map_batches
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import Integrations, IntegrationSummary
from libs.common.things import entity_id
from services.device.entities.advanced_search import (
    AdvancedFilter,
    EntityOrder,
    NameSources,
    find_only_device,
)
from services.device.entities.schemas import (
    AdvancedSearch,
    DeviceGroup,
    EntityResponse,
    SearchEntities,
)
from services.device.entities.search_counts import (
    DeviceCountByMemberSet,
    DeviceCountsByMatch,
    EntityLister,
    SearchRequest,
    SelectedMembers,
)
from services.device.entities.search_filters import Keyword, MemberFilter, ThingFilter
from services.device.entities.search_paging import (
    MAX_NAMED_MEMBER_SETS,
    CountedSearch,
    DeviceSelection,
    OutdatedCounts,
    member_sets_condition,
    read_page,
)
from services.device.entities.service import (
    ENTITIES_PER_VALUE_READ,
    ValueReader,
    latest_text,
    to_entity_response,
    without_times,
)
from services.device.entities.tags import EntityTags
from services.device.members.device_keys import (
    FIRST_KEY_DESCRIPTION,
    FIRST_KEY_NAME,
    FirstKeyReader,
)
from services.device.members.directory import EntityDirectory, MemberSetDirectory
from services.device.members.entity import Entity
from services.device.members.integration_things import IntegrationThings
from services.device.things.device_queries import DeviceQueries
from services.device.things.groups import GroupStore
from services.device.things.model import Device, MemberSetKey
from services.device.things.visibility import (
    MATCHES_NOTHING,
    Condition,
    disjoint_conditions,
    granted_condition,
)

MAX_ROWS_WITH_EVENTS = 200
"""Maximum rows of a page in which events have outputs: each event of a thing needs a query."""
MAX_LISTED_ENTITIES = 10_000
"""Maximum entities of a list, and of a page."""
IntegrationsById = Mapping[str, IntegrationSummary]


@dataclass(frozen=True)
class EntitySearch:
    """Searches entities for users."""

    devices: DeviceQueries
    member_sets: MemberSetDirectory
    directory: EntityDirectory
    grants: GrantReader
    integrations: Integrations
    integration_things: IntegrationThings
    groups: GroupStore
    tags: EntityTags
    values: ValueReader
    first_keys: FirstKeyReader

    async def search(
        self, principal: Principal, body: SearchEntities
    ) -> StreamedAnswer[list[EntityResponse] | Page[EntityResponse]]:
        """Stream matching entities in order, as a page or as a list.

        The response has at most `MAX_LISTED_ENTITIES`, and a page at most `page_size`.
        """
        await self.integration_things.ensure_for_tenant(principal.tenant)
        integrations = await self.integrations.list_summaries()
        page = await self._read_page(await self._build_request(principal, body, integrations), body)
        to_rows = partial(self._to_rows, principal.tenant, integrations)
        return StreamedAnswer(
            replace(page, content=[]) if body.is_paged else [],
            map_batches(iterate_rows(page.content), to_rows),
        )

    async def search_advanced(
        self, principal: Principal, body: AdvancedSearch
    ) -> StreamedAnswer[Page[EntityResponse]]:
        """Stream entities that match all column filters, with latest values."""
        await self.integration_things.ensure_for_tenant(principal.tenant)
        integrations = await self.integrations.list_summaries()
        names = NameSources(principal.tenant, integrations, self.groups, self.tags)
        parsed = await AdvancedFilter.from_columns(body.entity_filter or {}, names)
        ids = parsed.ids
        if parsed.keys is not None:
            entities_by_key = await self.directory.find_by_keys(principal.tenant, parsed.keys)
            named_ids = {entity.id for entity in entities_by_key.values()}
            ids = sorted(named_ids if ids is None else named_ids & set(ids))
        request = SearchRequest(
            principal=principal,
            grants=await self.grants.read(principal),
            order=EntityOrder.from_request(body, _integration_names(integrations)),
            select_members=parsed.select_members,
            keyword=parsed.key_test,
            negated=parsed.negated,
            conditions=parsed.device_conditions,
            accepts=parsed.accepts_thing,
            ids=ids,
            excluded_ids=await self._resolve_excluded_ids(principal.tenant, parsed),
        )
        page = await self._read_page(request, body)
        with_events = len(page.content) <= MAX_ROWS_WITH_EVENTS

        async def to_rows_with_values(entities: Sequence[Entity]) -> list[EntityResponse]:
            rows = await self._to_rows(principal.tenant, integrations, entities)
            await self._add_latest_values(entities, rows, with_events=with_events)
            return rows

        rows = map_batches(iterate_rows(page.content), to_rows_with_values, ENTITIES_PER_VALUE_READ)
        first = await self._find_device_key_rows(principal, body, integrations)
        return StreamedAnswer(replace(page, content=[]), chain_rows(first, rows))

    async def _find_device_key_rows(
        self, principal: Principal, body: AdvancedSearch, integrations: IntegrationsById
    ) -> list[EntityResponse]:
        """Return a row with the first key (login) of a device, for the user who added it.

        The existing console shows the key only in this list. Thingway's console shows it on the
        page of the device.
        """
        device_id = find_only_device(body) if body.number == 1 else None
        if device_id is None or principal.uses_own_console:
            return []
        device_with_key = await self.first_keys.find_device_with_key(principal, device_id)
        return (
            []
            if device_with_key is None
            else [_build_device_key_row(*device_with_key, integrations)]
        )

    async def _resolve_excluded_ids(self, tenant: str, parsed: AdvancedFilter) -> frozenset[int]:
        if parsed.excluded_key is None:
            return parsed.excluded_ids
        entities_by_key = await self.directory.find_by_keys(tenant, [parsed.excluded_key])
        return parsed.excluded_ids.union(entity.id for entity in entities_by_key.values())

    async def _build_request(
        self, principal: Principal, body: SearchEntities, integrations: IntegrationsById
    ) -> SearchRequest:
        ids = None if body.entity_ids is None else distinct_ids(body.entity_ids)
        if body.entity_keys is not None:
            entities_by_key = await self.directory.find_by_keys(principal.tenant, body.entity_keys)
            named_ids = {entity.id for entity in entities_by_key.values()}
            ids = sorted(named_ids if ids is None else named_ids & set(ids))
        keyword = None
        if body.keyword:
            keyword = Keyword(body.keyword, integrations, keys=not body.not_scan_key)
        source = ThingFilter.from_source_name(body.entity_source_name, integrations)
        return SearchRequest(
            principal=principal,
            grants=await self.grants.read(principal),
            order=EntityOrder.from_request(body, _integration_names(integrations)),
            select_members=MemberFilter(body),
            keyword=keyword,
            conditions=source.conditions,
            accepts=source.accepts,
            ids=ids,
            customized=body.customized,
        )

    async def _read_page(self, request: SearchRequest, body: PageRequest) -> Page[Entity]:
        listed = EntityLister(self.directory, request)
        excluded = (
            await listed.list_counted_excluded()
            if request.excluded_ids and request.ids is None
            else []
        )
        rows = await listed.list_entities()
        size = min(body.size, MAX_LISTED_ENTITIES) if body.is_paged else MAX_LISTED_ENTITIES
        skip = (body.number - 1) * size
        result = await self._count_entities(
            request, rows, excluded, fresh=request.keyword is not None
        )
        try:
            page = await read_page(self.devices, result, skip, size)
        except OutdatedCounts:
            result = await self._count_entities(request, rows, excluded, fresh=True)
            page = await read_page(self.devices, result, skip, size)
        return Page(page_size=size, page_number=body.number, total=result.total, content=page)

    async def _to_rows(
        self, tenant: str, integrations: IntegrationsById, entities: Sequence[Entity]
    ) -> list[EntityResponse]:
        """Return rows with device groups and tags."""
        rows = [to_entity_response(entity, integrations) for entity in entities]
        groups = {entity.thing.group for entity in entities if entity.thing.group is not None}
        names = await self.groups.find_names(tenant, groups) if groups else {}
        tags = await self.tags.find_tags(tenant, [entity.id for entity in entities])
        for entity, row in zip(entities, rows, strict=True):
            group = entity.thing.group
            if group is not None and group in names:
                row.device_group = DeviceGroup(str(group), names[group])
            row.entity_tags = tags.get(entity.id) or None
        return rows

    async def _add_latest_values(
        self, entities: Sequence[Entity], rows: Sequence[EntityResponse], *, with_events: bool
    ) -> None:
        of_properties = [entity for entity in entities if entity.member.type == "PROPERTY"]
        latest = await self.values.find_reported_by_thing(of_properties)
        values_by_type = {"PROPERTY": latest}
        if with_events:
            values_by_type["EVENT"] = await self.values.find_newest_events_by_thing(entities)
        for entity, row in zip(entities, rows, strict=True):
            if entity.member.type in values_by_type:
                entries = values_by_type[entity.member.type].get(entity.thing.id, {})
                row.entity_latest_value = latest_text(entity, without_times(entries))

    async def _count_entities(
        self,
        request: SearchRequest,
        listed: Sequence[Entity],
        excluded: Sequence[Entity],
        *,
        fresh: bool,
    ) -> CountedSearch:
        """Return the search with its listed entities and the numbers of device entities.

        The counts of devices include `excluded` entities, which are subtracted. With `fresh`, no
        count comes from a cache.
        """
        tenant, keyword = request.tenant, request.keyword
        count = partial(self._count_devices_by_member_set, tenant, fresh=fresh)
        visible = disjoint_conditions(request.grants)
        if request.customized or request.ids is not None:
            visible = []
        parts = [[part, *request.conditions] for part in visible]
        if not parts:
            keyword = None
        whole_device_conditions, integrations = list[Condition](), list[str]()
        if keyword is not None:
            integrations = list(await self.devices.list_integrations(tenant))
            whole_device_conditions = keyword.whole_device_conditions(integrations)
        all_counts, whole_device_counts = await asyncio.gather(
            count(parts), count(_split_disjoint(parts, whole_device_conditions))
        )
        member_sets = await self.member_sets.find(tenant, all_counts.keys())
        selected_members = SelectedMembers(
            {key: request.select_members(members) for key, members in member_sets.items()},
            request.order,
            request.keyword,
            negated=request.negated,
            excluded=excluded,
        )
        head_conditions = list[Condition]()
        counts_by_tail = list[tuple[str, DeviceCountByMemberSet]]()
        if keyword is not None:
            others = [{"$nor": whole_device_conditions}] if whole_device_conditions else []
            for head, tail in selected_members.find_matching_keyword_splits():
                head_conditions.append(keyword.head_condition(head, integrations))
                counts = await count([[*part, *others, head_conditions[-1]] for part in parts])
                counts_by_tail.append((tail, counts))
        conditions = [granted_condition(request.grants), *request.conditions]
        if keyword is not None and not request.negated:
            conditions += _any_match_condition(
                [*whole_device_conditions, *head_conditions], selected_members, all_counts
            )
        all_match = keyword is None and not excluded
        devices = DeviceSelection(
            tenant, request.grants, conditions, member_sets, selected_members, all_match
        )
        sizes = selected_members.count_by_group(
            DeviceCountsByMatch(all_counts, whole_device_counts, counts_by_tail)
        )
        return CountedSearch(request.order, listed, devices, sizes, may_be_outdated=not fresh)

    async def _count_devices_by_member_set(
        self, tenant: str, parts: Sequence[Sequence[Condition]], *, fresh: bool
    ) -> Counter[MemberSetKey]:
        """Return the number of devices by member set, summed over `parts`.

        Each part is a list of conditions.
        """
        totals: Counter[MemberSetKey] = Counter()
        counts = await asyncio.gather(
            *(self.devices.count_by_member_set(tenant, part, fresh=fresh) for part in parts)
        )
        for part_counts in counts:
            totals.update(part_counts)
        return totals


def _build_device_key_row(
    device: Device, key: str, integrations: IntegrationsById
) -> EntityResponse:
    """Return the row that shows a device's first key (login); number 0, which no member has."""
    integration = integrations.get(device.integration)
    return EntityResponse(
        entity_id=str(entity_id(device.id, 0)),
        entity_key=key,
        entity_name=FIRST_KEY_NAME,
        entity_type="PROPERTY",
        entity_value_type="STRING",
        entity_value_attribute={},
        entity_access_mod="R",
        entity_description=FIRST_KEY_DESCRIPTION,
        entity_is_customized=False,
        entity_created_at=to_ms(device.created_at),
        entity_updated_at=to_ms(device.updated_at),
        device_id=str(device.id),
        device_name=device.name,
        integration_name=integration.name if integration else None,
        entity_value_store_mod="HISTORY",
        entity_latest_value=key,
    )


def _integration_names(integrations: IntegrationsById) -> dict[str, str]:
    return {integration: summary.name or "" for integration, summary in integrations.items()}


def _split_disjoint(
    parts: Sequence[list[Condition]], either: Sequence[Condition]
) -> list[list[Condition]]:
    """Return each of `parts` with each of `either`, such that a device meets only one result.

    The parts must be disjoint.

    MongoDB uses an index for each condition, but not for a disjunction of all of them.
    """
    return [
        [*part, condition, *([{"$nor": list(either[:at])}] if at else [])]
        for part in parts
        for at, condition in enumerate(either)
    ]


def _any_match_condition(
    conditions: list[Condition],
    selected_members: SelectedMembers,
    counts: Mapping[MemberSetKey, int],
) -> list[Condition]:
    """Return the condition of devices with an entity that the keyword matches.

    The list is empty, for all devices, if each may match or the condition would be too long.
    """
    matching = selected_members.find_matching_member_sets()
    if len(matching) > MAX_NAMED_MEMBER_SETS or matching == counts.keys():
        return []
    either = [*conditions, *([member_sets_condition(matching)] if matching else [])]
    return [{"$or": either}] if either else [MATCHES_NOTHING]
