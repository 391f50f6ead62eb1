"""`POST /ingest/v1/{sn}/…`: the gateway has checked the device key."""

from typing import Annotated, Literal

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from libs.common.envelope import Success
from libs.common.http import HttpRequest, ok, principal_of
from libs.common.http.guards import devices
from libs.common.http.open_api import post
from libs.common.http.operations import operations_of
from services.device.reports.edge.schemas import EventMessage, ReplyMessage, ReportMessage
from services.device.reports.edge.service import Accepted, EdgeService

Wait = Annotated[
    Literal["stored"] | None,
    QueryParameter(description="`stored`: answer when it is in MongoDB"),
]


async def _accept(
    request: HttpRequest, edge: EdgeService, sn: str, channel: str, wait: str | None
) -> Success[Accepted]:
    accepted = await edge.accept(
        principal_of(request), sn, channel, await request.body(), stored=wait == "stored"
    )
    return ok(request, accepted)


@post(
    "/report",
    summary="Report properties",
    status_code=202,
    body=ReportMessage | list[ReportMessage],
    example={"properties": {"temperature": 21.5}},
)
async def report_properties(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """What was measured, one report or an array of up to 1000."""
    return await _accept(request, edge, sn, "report", wait)


@post(
    "/event",
    summary="Report an event",
    status_code=202,
    body=EventMessage | list[EventMessage],
    example={"eventId": "alarm", "outputs": {"level": 2}},
)
async def report_event(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """What happened, one event of the TSL or an array of up to 1000."""
    return await _accept(request, edge, sn, "event", wait)


@post(
    "/reply",
    summary="Answer a command",
    status_code=202,
    body=ReplyMessage | list[ReplyMessage],
    example={"commandId": 1000017, "status": "SUCCESS", "outputs": {}},
)
async def answer_command(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """What became of commands, one answer or an array of up to 1000."""
    return await _accept(request, edge, sn, "reply", wait)


ROUTER = Router(
    "/ingest/v1/{sn:str}",
    route_handlers=operations_of(globals()),
    guards=[devices],
    tags=["Device edge"],
)
