"""`POST /ingest/v1/{sn}/…`: the gateway has checked the device key."""

from typing import Annotated, Literal

from litestar import Router, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok, principal_of
from libs.common.http.guards import devices
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


@post("/report", status_code=202, responses=REFUSALS)
async def report(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """Report properties: `{ts?, properties}` or an array of up to 1000."""
    return await _accept(request, edge, sn, "report", wait)


@post("/event", status_code=202, responses=REFUSALS)
async def event(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """Report an event of the TSL: `{ts?, eventId, outputs}` or an array of up to 1000."""
    return await _accept(request, edge, sn, "event", wait)


@post("/reply", status_code=202, responses=REFUSALS)
async def reply(
    request: HttpRequest, edge: NamedDependency[EdgeService], sn: FromPath[str], wait: Wait = None
) -> Success[Accepted]:
    """Answer a command: `{commandId, status, outputs?, error?}` or an array of up to 1000."""
    return await _accept(request, edge, sn, "reply", wait)


ROUTER = Router(
    "/ingest/v1/{sn:str}",
    route_handlers=[report, event, reply],
    guards=[devices],
    tags=["Device edge"],
)
