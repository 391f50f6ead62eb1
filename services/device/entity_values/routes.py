"""`/entity`: values of entities on the console."""

from typing import Any

from litestar import Request, Router, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import principal_of
from libs.common.http.console import CONSOLE_REFUSALS, Answer, Page, answer
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.device.entity_values.history import EntityHistory
from services.device.entity_values.schemas import (
    Aggregate,
    AggregateHistory,
    HistoryItem,
    SearchHistory,
)

HttpRequest = Request[Any, Any, Any]
DASHBOARDS = (Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW)


@post(
    "/history/search",
    responses=CONSOLE_REFUSALS,
    guards=[holders(*DASHBOARDS, Function.DASHBOARD_ADD, Function.ENTITY_DATA_VIEW)],
    status_code=200,
    summary="Search the history of entities",
)
async def search_history(
    request: HttpRequest, entity_history: NamedDependency[EntityHistory], data: JSONBody[SearchHistory]
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


ROUTER = Router("/entity", route_handlers=[search_history, aggregate_history], tags=["Entities"])
