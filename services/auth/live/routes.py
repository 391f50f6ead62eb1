"""`/mqtt`: how a page of a console comes to its live updates."""

from litestar import Router
from litestar.di import NamedDependency

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import NOT_KEPT, Answer, answer, get
from libs.common.http.guards import users
from services.auth.live.schemas import BrokerInfo, LiveCredentials
from services.auth.live.service import LivePasswords


@get(
    "/web/credentials",
    guards=[users],
    summary="Get credentials of live updates",
    response_headers=NOT_KEPT,
)
async def get_live_credentials(
    request: HttpRequest, live_passwords: NamedDependency[LivePasswords]
) -> Answer[LiveCredentials]:
    """Credentials for MQTT over WebSocket, for one page; they end with the log-in."""
    return answer(request, await live_passwords.issue(principal_of(request)))


@get("/broker-info", guards=[users], summary="Get where MQTT is spoken")
async def get_broker_info(
    request: HttpRequest, broker: NamedDependency[BrokerInfo]
) -> Answer[BrokerInfo]:
    """Path of MQTT over WebSocket at the page's own origin, and where other clients go."""
    return answer(request, broker)


ROUTER = Router(
    "/mqtt", route_handlers=[get_live_credentials, get_broker_info], tags=["Live updates"]
)
