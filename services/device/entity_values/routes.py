"""`/entity`: values of entities on the console."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Router, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream

from libs.common.http import principal_of
from libs.common.http.console import CONSOLE_REFUSALS, MAX_ID, Answer, Page, answer
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from libs.common.tsl.limits import MAX_TS
from services.device.entity_values.calling import EntityCaller
from services.device.entity_values.export import EntityExport, filename
from services.device.entity_values.history import EntityHistory
from services.device.entity_values.schemas import (
    Aggregate,
    AggregateHistory,
    CallService,
    HistoryItem,
    SearchHistory,
    UpdateProperties,
)
from services.device.entity_values.writing import EntityWriter

HttpRequest = Request[Any, Any, Any]
Time = Annotated[int | None, QueryParameter(ge=0, le=MAX_TS, description="ms since 1970")]
DASHBOARDS = (Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW)


@post(
    "/history/search",
    responses=CONSOLE_REFUSALS,
    guards=[holders(*DASHBOARDS, Function.DASHBOARD_ADD, Function.ENTITY_DATA_VIEW)],
    status_code=200,
    summary="Search the history of entities",
)
async def search_history(
    request: HttpRequest,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[SearchHistory],
) -> Answer[list[HistoryItem] | Page[HistoryItem]]:
    """The values that entities had, the newest first; a list without pages ends at 10,000."""
    return answer(request, await entity_history.search(principal_of(request), data))


@post(
    "/history/aggregate",
    responses=CONSOLE_REFUSALS,
    guards=[holders(*DASHBOARDS)],
    status_code=200,
    summary="Aggregate the history of an entity",
)
async def aggregate_history(
    request: HttpRequest,
    entity_history: NamedDependency[EntityHistory],
    data: JSONBody[AggregateHistory],
) -> Answer[Aggregate]:
    """The last, least or greatest value, the mean or the sum, or how often there was which."""
    return answer(request, await entity_history.aggregate(principal_of(request), data))


@get(
    "/export",
    responses=CONSOLE_REFUSALS,
    guards=[holders(Function.ENTITY_DATA_EXPORT)],
    summary="Export the history of entities",
)
async def export_history(
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
) -> Stream:
    """CSV: the values that entities had, those of each the newest first, times in UTC."""
    lines = await entity_export.rows(
        principal_of(request),
        ids or [],
        start if start_timestamp is None else start_timestamp,
        end if end_timestamp is None else end_timestamp,
    )
    disposition = f"attachment; filename={filename()}"
    return Stream(lines, media_type="text/csv", headers={"Content-Disposition": disposition})


@post(
    "/property/update",
    responses=CONSOLE_REFUSALS,
    guards=[holders(Function.INTEGRATION_VIEW, *DASHBOARDS)],
    status_code=200,
    summary="Update properties of entities",
)
async def update_properties(
    request: HttpRequest,
    entity_writer: NamedDependency[EntityWriter],
    data: JSONBody[UpdateProperties],
) -> Answer[None]:
    """Set values by entity key; a device takes them on when it answers."""
    await entity_writer.update(principal_of(request), data)
    return answer(request)


@post(
    "/service/call",
    responses=CONSOLE_REFUSALS,
    guards=[holders(Function.INTEGRATION_VIEW, *DASHBOARDS)],
    status_code=200,
    summary="Call services of entities",
)
async def call_services(
    request: HttpRequest,
    entity_caller: NamedDependency[EntityCaller],
    data: JSONBody[CallService],
) -> Answer[dict[str, Any]]:
    """Call services with inputs by entity key, and wait for their outputs."""
    return answer(request, await entity_caller.call(principal_of(request), data))


ROUTER = Router(
    "/entity",
    route_handlers=[
        search_history,
        aggregate_history,
        export_history,
        update_properties,
        call_services,
    ],
    tags=["Entities"],
)
