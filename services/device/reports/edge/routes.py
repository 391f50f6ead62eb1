"""`POST /ingest/v1/{sn}/…`: the gateway has checked the device key."""

from typing import Annotated, Literal

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from libs.common.http import HttpRequest, Requester
from libs.common.http.guards import devices
from libs.common.http.open_api import post
from libs.common.http.operations import operations_of
from services.device.reports.edge.schemas import EventMessage, ReplyMessage, ReportMessage
from services.device.reports.edge.service import Accepted, EdgeService

Edge = NamedDependency[EdgeService]
Wait = Annotated[
    Literal["stored"] | None,
    QueryParameter(description="`stored`: answer when it is in MongoDB"),
]


@post(
    "/report",
    status_code=202,
    body=ReportMessage | list[ReportMessage],
    example={"properties": {"temperature": 21.5}},
    waits=True,
)
async def report_properties(
    request: HttpRequest, principal: Requester, edge: Edge, sn: FromPath[str], wait: Wait = None
) -> Accepted:
    """What was measured, one report or an array of up to 1000."""
    return await edge.accept(principal, sn, "report", await request.body(), stored=wait is not None)


@post(
    "/event",
    status_code=202,
    body=EventMessage | list[EventMessage],
    example={"eventId": "alarm", "outputs": {"level": 2}},
    waits=True,
)
async def report_event(
    request: HttpRequest, principal: Requester, edge: Edge, sn: FromPath[str], wait: Wait = None
) -> Accepted:
    """What happened, one event of the TSL or an array of up to 1000."""
    return await edge.accept(principal, sn, "event", await request.body(), stored=wait is not None)


@post(
    "/reply",
    status_code=202,
    body=ReplyMessage | list[ReplyMessage],
    example={"commandId": 1000017, "status": "SUCCESS", "outputs": {}},
    waits=True,
)
async def answer_command(
    request: HttpRequest, principal: Requester, edge: Edge, sn: FromPath[str], wait: Wait = None
) -> Accepted:
    """What became of commands, one answer or an array of up to 1000."""
    return await edge.accept(principal, sn, "reply", await request.body(), stored=wait is not None)


ROUTER = Router(
    "/ingest/v1/{sn:str}",
    route_handlers=operations_of(globals()),
    guards=[devices],
    tags=["Device edge"],
)
