"""Console operations on entities and their tags: `/entity` and `/entity/tags`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import UNSET

from libs.common.clock import to_ms
from libs.common.http import HttpRequest, RequestPrincipal, get_principal
from libs.common.http.console import Page, distinct_ids, get, post, put
from libs.common.http.guards import allow_holders, commanding_users, users
from libs.common.http.ids import Id, PathId
from libs.common.http.operations import route_operations
from libs.common.http.request import get_request_id
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity.functions import Function
from libs.common.tsl.limits import MAX_TIME_MS
from services.device.entities.custom_entities import CustomEntities
from services.device.entities.history import EntityExport, EntityHistory, export_filename
from services.device.entities.property_updates import EntityWriter
from services.device.entities.schemas import (
    AdvancedSearch,
    Aggregate,
    AggregateHistory,
    CalledServices,
    CallEntityServices,
    CreateEntity,
    DeleteEntities,
    DeleteTags,
    EntityMeta,
    EntityResponse,
    EntityStatus,
    FindTags,
    GetEntityStatuses,
    HistoryItem,
    LatestValue,
    MapTags,
    QueuedCall,
    SaveTag,
    SearchEntities,
    SearchHistory,
    TagCount,
    TagRef,
    TagResponse,
    UpdateEntities,
    UpdateEntity,
)
from services.device.entities.search import EntitySearch
from services.device.entities.service import EntityService
from services.device.entities.service_calls import EntityCaller
from services.device.entities.tags import EntityTags

CustomEntitiesDependency = NamedDependency[CustomEntities]
EntityServiceDependency = NamedDependency[EntityService]

QueryTime = Annotated[int | None, QueryParameter(ge=0, le=MAX_TIME_MS)]
TimeZoneName = Annotated[str | None, QueryParameter(max_length=64)]
ENTITY_READ_FUNCTIONS = (
    Function.DASHBOARD_EDIT,
    Function.DASHBOARD_VIEW,
    Function.DEVICE_VIEW,
    Function.WORKFLOW_ADD,
    Function.WORKFLOW_EDIT,
)
ENTITY_SEARCH_FUNCTIONS = (
    Function.DASHBOARD_EDIT,
    Function.DEVICE_VIEW,
    Function.ENTITY_CUSTOM_VIEW,
    Function.ENTITY_DATA_VIEW,
    Function.WORKFLOW_ADD,
    Function.WORKFLOW_EDIT,
)


@post(
    "/search",
    guards=[allow_holders(*ENTITY_SEARCH_FUNCTIONS)],
    example={"keyword": "temperature", "page_size": 10, "page_number": 1},
)
async def search_entities(
    principal: RequestPrincipal,
    entity_search: NamedDependency[EntitySearch],
    data: JSONBody[SearchEntities | None] = None,
) -> StreamedAnswer[list[EntityResponse] | Page[EntityResponse]]:
    """Search entities that the caller may see, by default newest first; at most 10,000."""
    return await entity_search.search(principal, data or SearchEntities())


@post(
    "/advanced-search",
    guards=[allow_holders(*ENTITY_SEARCH_FUNCTIONS)],
    example={"entity_filter": {"ENTITY_NAME": {"operator": "CONTAINS", "values": ["temp"]}}},
)
async def search_entities_by_columns(
    principal: RequestPrincipal,
    entity_search: NamedDependency[EntitySearch],
    data: JSONBody[AdvancedSearch],
) -> StreamedAnswer[Page[EntityResponse]]:
    """Search entities by column filters, with their latest values.

    The response is a page even if the request has no page size. A page has at most
    10,000 entities.
    """
    return await entity_search.search_advanced(principal, data)


@post(
    "/batch-get-status", guards=[allow_holders(*ENTITY_READ_FUNCTIONS)], example={"entity_ids": []}
)
async def get_entity_statuses(
    principal: RequestPrincipal,
    entities: EntityServiceDependency,
    data: JSONBody[GetEntityStatuses],
) -> StreamedAnswer[dict[str, LatestValue]]:
    """Return latest values by id of entities that the caller may see.

    An entity without a value has an empty status.
    """
    ids = distinct_ids(data.entity_ids)
    return await entities.stream_statuses(principal, ids)


@get(
    "/{entity_id:str}/children",
    guards=[allow_holders(*ENTITY_READ_FUNCTIONS, Function.INTEGRATION_VIEW)],
)
async def list_entity_children(
    principal: RequestPrincipal, entities: EntityServiceDependency, entity_id: PathId
) -> list[EntityResponse]:
    """List members of an OBJECT, inputs of a service, or outputs of an event."""
    return await entities.list_children(principal, entity_id)


@get("/{entity_id:str}/meta", guards=[users])
async def get_entity_meta(
    principal: RequestPrincipal, entities: EntityServiceDependency, entity_id: PathId
) -> EntityMeta:
    """Return the metadata of an entity."""
    return await entities.get_meta(principal, entity_id)


@get("/{entity_id:str}/status", guards=[allow_holders(*ENTITY_READ_FUNCTIONS)])
async def get_entity_status(
    principal: RequestPrincipal, entities: EntityServiceDependency, entity_id: PathId
) -> EntityStatus:
    """Return the latest value of a property or event; empty without a value or grant."""
    return await entities.get_status(principal, entity_id)


@post(
    "/history/search",
    guards=[
        allow_holders(*ENTITY_READ_FUNCTIONS, Function.DASHBOARD_ADD, Function.ENTITY_DATA_VIEW)
    ],
)
async def search_entity_history(
    principal: RequestPrincipal,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[SearchHistory],
) -> StreamedAnswer[list[HistoryItem] | Page[HistoryItem]]:
    """Search history of entities, by default newest first; a list has at most 10,000 values."""
    return await entity_history.search(principal, data)


@post("/history/aggregate", guards=[allow_holders(*ENTITY_READ_FUNCTIONS)])
async def aggregate_entity_history(
    principal: RequestPrincipal,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[AggregateHistory],
) -> Aggregate:
    """Return the last value, minimum, maximum, mean, sum, or counts by value."""
    return await entity_history.aggregate(principal, data)


@get(
    "/export",
    guards=[
        allow_holders(Function.ENTITY_DATA_EXPORT, Function.ENTITY_DATA_VIEW, Function.DEVICE_VIEW)
    ],
)
async def export_entity_history(
    request: HttpRequest,
    entity_export: NamedDependency[EntityExport],
    ids: Annotated[
        list[Id] | None,
        QueryParameter(description="Ids of entities. Repeat the parameter for each entity."),
    ] = None,
    start_timestamp: QueryTime = None,
    end_timestamp: QueryTime = None,
    start: Annotated[
        int | None, QueryParameter(name="startTimestamp", ge=0, le=MAX_TIME_MS)
    ] = None,
    end: Annotated[int | None, QueryParameter(name="endTimestamp", ge=0, le=MAX_TIME_MS)] = None,
    timezone: TimeZoneName = None,
    time_zone: TimeZoneName = None,
    zone: Annotated[str | None, QueryParameter(name="timeZone", max_length=64)] = None,
) -> Stream:
    """Export history of entities as CSV, newest values of each entity first.

    Times are in UTC, or in the time zone of `timezone`, `time_zone` or `timeZone`.
    """
    lines = await entity_export.export_lines(
        get_principal(request),
        ids or [],
        start if start_timestamp is None else start_timestamp,
        end if end_timestamp is None else end_timestamp,
        timezone or time_zone or zone,
    )
    disposition = f"attachment; filename={export_filename()}"
    return Stream(lines, media_type="text/csv", headers={"Content-Disposition": disposition})


@post("/property/update", guards=[commanding_users], waits=True)
async def update_entity_properties(
    principal: RequestPrincipal,
    entity_writer: NamedDependency[EntityWriter],
    data: JSONBody[UpdateEntities],
) -> None:
    """Set values by entity key; values of a device change when it confirms the command.

    Requires `entity_data.edit`, `device.edit`, `dashboard.edit` or `workflow.edit`. If the
    tenant's setting `viewers_may_command` is on, `device.view`, `dashboard.view`,
    `integration.view` or `workflow.add` also suffices.
    """
    await entity_writer.update(principal, data)


@post("/service/call", guards=[commanding_users], waits=True)
async def call_entity_services(
    request: HttpRequest,
    entity_caller: NamedDependency[EntityCaller],
    data: JSONBody[CallEntityServices],
) -> CalledServices:
    """Call services with inputs by entity key, and return their outputs.

    Requires the same functions as `POST /entity/property/update`. An offline device receives the
    call when it connects before `expires_at`, which `detail` contains.
    """
    called = await entity_caller.call(get_principal(request), data)
    queued = [
        QueuedCall(device=call.sn, command_id=str(call.id), expires_at=to_ms(call.expires_at))
        for call in called.queued
    ]
    return CalledServices(
        data=called.outputs, request_id=get_request_id(request), detail=queued or UNSET
    )


@post("/", guards=[allow_holders(Function.ENTITY_CUSTOM_ADD)])
async def create_entity(
    principal: RequestPrincipal,
    custom_entities: CustomEntitiesDependency,
    data: JSONBody[CreateEntity],
) -> EntityMeta:
    """Create a custom entity `system.integration.{identifier}`, or a child of a custom entity."""
    return await custom_entities.create(principal, data)


@put(
    "/{entity_id:str}",
    guards=[allow_holders(Function.ENTITY_DATA_EDIT, Function.ENTITY_CUSTOM_EDIT)],
)
async def update_entity(
    principal: RequestPrincipal,
    custom_entities: CustomEntitiesDependency,
    entity_id: PathId,
    data: JSONBody[UpdateEntity],
) -> None:
    """Rename an entity, or change the attributes of a custom property."""
    await custom_entities.update(principal, entity_id, data)


@post("/delete", guards=[allow_holders(Function.ENTITY_CUSTOM_DELETE)])
async def delete_entities(
    principal: RequestPrincipal,
    custom_entities: CustomEntitiesDependency,
    data: JSONBody[DeleteEntities],
) -> None:
    """Delete custom entities with their children; ignore other ids."""
    await custom_entities.delete(principal, data)


ROUTER = route_operations(globals(), "/entity", tags=["Entities"])


TAG_MANAGERS = allow_holders(Function.ENTITY_TAG_MANAGE)
EntityTagsDependency = NamedDependency[EntityTags]


@post("/search", guards=[users], example={"keyword": "zone", "page_size": 10, "page_number": 1})
async def find_entity_tags(
    principal: RequestPrincipal,
    entity_tags: EntityTagsDependency,
    data: JSONBody[FindTags | None] = None,
) -> Page[TagResponse]:
    """Search tags of the tenant, newest first."""
    return await entity_tags.search(principal, data or FindTags())


@get("/number", guards=[users])
async def count_entity_tags(
    principal: RequestPrincipal, entity_tags: EntityTagsDependency
) -> TagCount:
    """Count the tags of the tenant; at most 300."""
    return TagCount(await entity_tags.store.count(principal.tenant))


@post("/", guards=[TAG_MANAGERS], example={"name": "zone-a", "color": "#6b7785", "description": ""})
async def create_entity_tag(
    principal: RequestPrincipal, entity_tags: EntityTagsDependency, data: JSONBody[SaveTag]
) -> TagRef:
    """Create a tag."""
    return TagRef(str(await entity_tags.store.add(principal.tenant, data)))


@put("/{tag_id:str}", guards=[TAG_MANAGERS])
async def update_entity_tag(
    principal: RequestPrincipal,
    entity_tags: EntityTagsDependency,
    tag_id: PathId,
    data: JSONBody[SaveTag],
) -> None:
    """Change name, colour and description of a tag."""
    await entity_tags.store.update(principal.tenant, tag_id, data)


@post("/delete", guards=[TAG_MANAGERS], example={"ids": []})
async def delete_entity_tags(
    principal: RequestPrincipal, entity_tags: EntityTagsDependency, data: JSONBody[DeleteTags]
) -> None:
    """Delete tags, also from entities; ignore unknown ids."""
    await entity_tags.store.delete(principal.tenant, distinct_ids(data.ids))


@post("/mapping", guards=[allow_holders(Function.ENTITY_DATA_EDIT)])
async def map_entity_tags(
    principal: RequestPrincipal, entity_tags: EntityTagsDependency, data: JSONBody[MapTags]
) -> None:
    """Add, replace or remove tags of entities that the caller may see, all or none."""
    await entity_tags.map_tags(principal, data)


TAG_ROUTER = route_operations(globals(), "/entity/tags", tags=["Entity tags"])
