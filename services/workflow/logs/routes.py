"""`/workflow/flows/{id}/logs/search` and `/workflow/flows/logs/{id}`."""

from typing import Any

from litestar import Request, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import principal_of
from libs.common.http.console import CONSOLE_REFUSALS, Answer, Page, PathId, answer
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.workflow.logs.schemas import SearchLogs, ShownLog, ShownRun
from services.workflow.logs.service import LogService

HttpRequest = Request[Any, Any, Any]


@post(
    "/{flow_id:str}/logs/search",
    responses=CONSOLE_REFUSALS,
    guards=[holders(Function.WORKFLOW_VIEW)],
    status_code=200,
    summary="Search the log of a flow",
)
async def search_logs(
    request: HttpRequest,
    logs: NamedDependency[LogService],
    flow_id: PathId,
    data: JSONBody[SearchLogs],
) -> Answer[list[ShownLog] | Page[ShownLog]]:
    """Runs of a flow, the newest first; tests are not among them."""
    return answer(request, await logs.search(principal_of(request), flow_id, data))


@get(
    "/logs/{log_id:str}",
    responses=CONSOLE_REFUSALS,
    guards=[holders(Function.WORKFLOW_VIEW)],
    summary="Show a run",
)
async def show_log(
    request: HttpRequest, logs: NamedDependency[LogService], log_id: PathId
) -> Answer[ShownRun]:
    """What each node was given, put out, and how long it took."""
    return answer(request, await logs.detail(principal_of(request), log_id))


ROUTES = (search_logs, show_log)
