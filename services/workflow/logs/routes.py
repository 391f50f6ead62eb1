"""`/workflow/flows/{id}/logs/search` and `/workflow/flows/logs/{id}`."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import Page, get, post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.workflow.logs.schemas import SearchLogs, ShownLog, ShownRun
from services.workflow.logs.service import LogService


@post("/{flow_id:str}/logs/search", guards=[holders(Function.WORKFLOW_VIEW)])
async def search_flow_logs(
    principal: Requester,
    logs: NamedDependency[LogService],
    flow_id: PathId,
    data: JSONBody[SearchLogs],
) -> list[ShownLog] | Page[ShownLog]:
    """Runs of a flow, the newest first; tests are not among them."""
    return await logs.search(principal, flow_id, data)


@get("/logs/{log_id:str}", guards=[holders(Function.WORKFLOW_VIEW)])
async def get_flow_log(
    principal: Requester, logs: NamedDependency[LogService], log_id: PathId
) -> ShownRun:
    """What each node was given, put out, and how long it took."""
    return await logs.detail(principal, log_id)


ROUTES = operations_of(globals())
