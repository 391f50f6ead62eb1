"""`/mqtt`: how a page of a console comes to its live updates."""

from litestar import Router
from litestar.di import NamedDependency

from libs.common.http import Requester
from libs.common.http.console import NOT_KEPT, get
from libs.common.http.guards import users
from libs.common.http.operations import operations_of
from services.auth.live.service import BrokerInfo, LiveCredentials, LivePasswords


@get("/web/credentials", guards=[users], response_headers=NOT_KEPT)
async def get_live_credentials(
    principal: Requester, live_passwords: NamedDependency[LivePasswords]
) -> LiveCredentials:
    """Credentials for MQTT over WebSocket, for one page; they end with the log-in."""
    return await live_passwords.issue(principal)


@get("/broker-info", guards=[users])
async def get_broker_info(broker: NamedDependency[BrokerInfo]) -> BrokerInfo:
    """Path of MQTT over WebSocket at the page's own origin, and where other clients go."""
    return broker


ROUTER = Router("/mqtt", route_handlers=operations_of(globals()), tags=["Live updates"])
