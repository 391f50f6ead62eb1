"""`/entity`: entities on the console."""

from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import UNSET

from libs.common.clock import to_ms
from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import (
    MAX_ID,
    Answer,
    Page,
    PathId,
    answer,
    get,
    ids_of,
    post,
    put,
)
from libs.common.http.guards import holders, users
from libs.common.http.request import request_id_of
from libs.common.identity.functions import Function
from libs.common.tsl.limits import MAX_TS
from services.device.entities.calling import EntityCaller
from services.device.entities.custom.service import CustomEntities
from services.device.entities.history.export import EntityExport, filename
from services.device.entities.history.service import EntityHistory
from services.device.entities.schemas import (
    Aggregate,
    AggregateHistory,
    AskStatus,
    CalledServices,
    CallEntities,
    CreateEntity,
    DeleteEntities,
    EntityMeta,
    EntityStatus,
    HistoryItem,
    LatestValue,
    QueuedCall,
    SearchEntities,
    SearchHistory,
    ShownEntity,
    UpdateEntities,
    UpdateEntity,
)
from services.device.entities.search.schemas import AdvancedSearch
from services.device.entities.search.service import EntitySearch
from services.device.entities.service import EntityService
from services.device.entities.writing import EntityWriter

Time = Annotated[int | None, QueryParameter(ge=0, le=MAX_TS, description="ms since 1970")]
Zone = Annotated[str | None, QueryParameter(max_length=64, description="IANA time zone")]
READERS = (
    Function.DASHBOARD_EDIT,
    Function.DASHBOARD_VIEW,
    Function.DEVICE_VIEW,
    Function.WORKFLOW_ADD,
    Function.WORKFLOW_EDIT,
)
FINDERS = (
    Function.DASHBOARD_EDIT,
    Function.DEVICE_VIEW,
    Function.ENTITY_CUSTOM_VIEW,
    Function.ENTITY_DATA_VIEW,
    Function.WORKFLOW_ADD,
    Function.WORKFLOW_EDIT,
)


@post(
    "/search",
    guards=[holders(*FINDERS)],
    summary="Search entities",
    example={"keyword": "temperature", "page_size": 10, "page_number": 1},
)
async def search_entities(
    request: HttpRequest,
    entity_search: NamedDependency[EntitySearch],
    data: JSONBody[SearchEntities | None] = None,
) -> Answer[list[ShownEntity] | Page[ShownEntity]]:
    """The entities that the caller sees, the newest first; at most 10,000 in one answer."""
    wanted = data or SearchEntities()
    return answer(request, await entity_search.search(principal_of(request), wanted))


@post(
    "/advanced-search",
    guards=[holders(*FINDERS)],
    summary="Search entities by columns",
    example={"entity_filter": {"ENTITY_NAME": {"operator": "CONTAINS", "values": ["temp"]}}},
)
async def search_entities_by_columns(
    request: HttpRequest,
    entity_search: NamedDependency[EntitySearch],
    data: JSONBody[AdvancedSearch],
) -> Answer[Page[ShownEntity]]:
    """Entities that meet a filter of each column, with their latest values; always a page.

    A page has 10,000 at most.
    """
    return answer(request, await entity_search.search_advanced(principal_of(request), data))


@post(
    "/batch-get-status",
    guards=[holders(*READERS)],
    summary="Get the latest values of entities",
    example={"entity_ids": []},
)
async def get_entity_statuses(
    request: HttpRequest, entities: NamedDependency[EntityService], data: JSONBody[AskStatus]
) -> Answer[dict[str, LatestValue]]:
    """By id, of those that the caller sees; what has no value is empty."""
    ids = ids_of(data.entity_ids)
    return answer(request, await entities.statuses(principal_of(request), ids))


@get(
    "/{entity_id:str}/children",
    guards=[holders(*READERS, Function.INTEGRATION_VIEW)],
    summary="List the children of an entity",
)
async def list_entity_children(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[list[ShownEntity]]:
    """The members of an OBJECT, the inputs of a service, the outputs of an event."""
    return answer(request, await entities.children(principal_of(request), entity_id))


@get("/{entity_id:str}/meta", guards=[users], summary="Get the metadata of an entity")
async def get_entity_meta(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[EntityMeta]:
    """What is known of an entity besides its value."""
    return answer(request, await entities.meta(principal_of(request), entity_id))


@get(
    "/{entity_id:str}/status",
    guards=[holders(*READERS)],
    summary="Get the latest value of an entity",
)
async def get_entity_status(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[EntityStatus]:
    """The latest value of a property; empty when there is none."""
    return answer(request, await entities.status(principal_of(request), entity_id))


@post(
    "/history/search",
    guards=[holders(*READERS, Function.DASHBOARD_ADD, Function.ENTITY_DATA_VIEW)],
    summary="Search the history of entities",
)
async def search_entity_history(
    request: HttpRequest,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[SearchHistory],
) -> Answer[list[HistoryItem] | Page[HistoryItem]]:
    """The values that entities had, the newest first; a list without pages ends at 10,000."""
    return answer(request, await entity_history.search(principal_of(request), data))


@post(
    "/history/aggregate",
    guards=[holders(*READERS)],
    summary="Aggregate the history of an entity",
)
async def aggregate_entity_history(
    request: HttpRequest,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[AggregateHistory],
) -> Answer[Aggregate]:
    """The last, least or greatest value, the mean or the sum, or how often there was which."""
    return answer(request, await entity_history.aggregate(principal_of(request), data))


@get(
    "/export",
    guards=[holders(Function.ENTITY_DATA_EXPORT, Function.ENTITY_DATA_VIEW, Function.DEVICE_VIEW)],
    summary="Export the history of entities",
)
async def export_entity_history(
    request: HttpRequest,
    entity_export: NamedDependency[EntityExport],
    ids: Annotated[
        list[Annotated[int, msgspec.Meta(ge=1, le=MAX_ID)]] | None,
        QueryParameter(description="Entity ids, each as a parameter of its own"),
    ] = None,
    start_timestamp: Time = None,
    end_timestamp: Time = None,
    start: Annotated[int | None, QueryParameter(name="startTimestamp", ge=0, le=MAX_TS)] = None,
    end: Annotated[int | None, QueryParameter(name="endTimestamp", ge=0, le=MAX_TS)] = None,
    timezone: Zone = None,
    time_zone: Zone = None,
    zone: Annotated[str | None, QueryParameter(name="timeZone", max_length=64)] = None,
) -> Stream:
    """CSV: the values that entities had, those of each the newest first.

    Times are of the time zone, which may be spelt in three ways, or else in UTC.
    """
    lines = await entity_export.rows(
        principal_of(request),
        ids or [],
        start if start_timestamp is None else start_timestamp,
        end if end_timestamp is None else end_timestamp,
        timezone or time_zone or zone,
    )
    disposition = f"attachment; filename={filename()}"
    return Stream(lines, media_type="text/csv", headers={"Content-Disposition": disposition})


@post(
    "/property/update",
    guards=[holders(Function.INTEGRATION_VIEW, *READERS)],
    summary="Update properties of entities",
)
async def update_entity_properties(
    request: HttpRequest,
    entity_writer: NamedDependency[EntityWriter],
    data: JSONBody[UpdateEntities],
) -> Answer[None]:
    """Set values by entity key; a device takes them on when it answers."""
    await entity_writer.update(principal_of(request), data)
    return answer(request)


@post(
    "/service/call",
    guards=[holders(Function.INTEGRATION_VIEW, *READERS)],
    summary="Call services of entities",
)
async def call_entity_services(
    request: HttpRequest,
    entity_caller: NamedDependency[EntityCaller],
    data: JSONBody[CallEntities],
) -> CalledServices:
    """Call services with inputs by entity key, and wait for their outputs.

    For a device that is offline nobody waits: it gets the call when it connects, and `detail`
    says until when.
    """
    called = await entity_caller.call(principal_of(request), data)
    queued = [
        QueuedCall(device=one.sn, command_id=str(one.id), expires_at=to_ms(one.expires_at))
        for one in called.queued
    ]
    return CalledServices(
        data=called.outputs, request_id=request_id_of(request), detail=queued or UNSET
    )


@post("/", guards=[holders(Function.ENTITY_CUSTOM_ADD)], summary="Create a custom entity")
async def create_entity(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    data: JSONBody[CreateEntity],
) -> Answer[EntityMeta]:
    """Make an entity `system.integration.{identifier}`, or a child of one."""
    return answer(request, await custom_entities.create(principal_of(request), data))


@put(
    "/{entity_id:str}",
    guards=[holders(Function.ENTITY_DATA_EDIT, Function.ENTITY_CUSTOM_EDIT)],
    summary="Update a custom entity",
)
async def update_entity(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    entity_id: PathId,
    data: JSONBody[UpdateEntity],
) -> Answer[None]:
    """Give a custom entity another name, and a property other attributes."""
    await custom_entities.update(principal_of(request), entity_id, data)
    return answer(request)


@post("/delete", guards=[holders(Function.ENTITY_CUSTOM_DELETE)], summary="Delete custom entities")
async def delete_entities(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    data: JSONBody[DeleteEntities],
) -> Answer[None]:
    """Delete custom entities with their children; other ids are passed over."""
    await custom_entities.delete(principal_of(request), data)
    return answer(request)


ROUTER = Router(
    "/entity",
    route_handlers=[
        search_entities,
        search_entities_by_columns,
        get_entity_statuses,
        list_entity_children,
        get_entity_meta,
        get_entity_status,
        search_entity_history,
        aggregate_entity_history,
        export_entity_history,
        update_entity_properties,
        call_entity_services,
        create_entity,
        update_entity,
        delete_entities,
    ],
    tags=["Entities"],
)
