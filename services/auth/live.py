"""Passwords for live updates of console pages. They expire with the session."""

import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
from litestar.di import NamedDependency

from libs.common.bus import RpcServer
from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH, LivePages, LoginRef, live_mqtt_user
from libs.common.errors import Unauthenticated
from libs.common.http import RequestPrincipal
from libs.common.http.console import NO_STORE_HEADERS, ResponseModel, get
from libs.common.http.guards import users
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.identity.tokens import live_password_key
from libs.common.tls import DEFAULT_PORT_BY_MQTT_SCHEME
from services.auth.tokens.writer import TokenWriter


class LiveCredentials(msgspec.Struct):
    """Response of `GET /mqtt/web/credentials`, shown only once."""

    client_id: str
    """MQTT client id of this page, which no other page has."""
    username: str
    """User name for MQTT."""
    password: str
    """Password for MQTT."""


class BrokerInfo(ResponseModel, kw_only=True):
    """Response of `GET /mqtt/broker-info`.

    It contains neither a host nor WebSocket ports, because consoles use the origin of their page.
    """

    ws_path: str
    """Path of MQTT over WebSocket on the gateway, for example `/mqtt`."""
    mqtt_port: int | None = None
    """Public MQTT port for devices and other clients; absent if not configured."""
    mqtts_port: int | None = None
    """Public MQTT port with TLS."""


@dataclass(frozen=True)
class LivePasswordService:
    """Issues passwords for live updates."""

    tokens: TokenWriter

    async def issue_for_page(self, user: Principal) -> LiveCredentials:
        """Return an MQTT login for one page; raise `Unauthenticated` without a session.

        Each page gets a new client id, because MQTT disconnects the first of two clients with one
        id.
        """
        password, username = secrets.token_urlsafe(32), live_mqtt_user(user.user_id)
        if not await self.tokens.add_live_credential(user, live_password_key(password)):
            raise Unauthenticated("the session has ended; log in again")
        return LiveCredentials(f"{username}#{secrets.token_hex(8)}", username, password)

    async def has_live_credentials(self, login: LoginRef) -> LivePages:
        """Return whether any page of a session has MQTT credentials, connected or not."""
        return LivePages(await self.tokens.has_live_credentials(login.family))


def offer_live(rpc: RpcServer, passwords: LivePasswordService) -> None:
    """Offer `rpc.auth.has_live_pages`."""
    rpc.offer("has_live_pages", LoginRef, passwords.has_live_credentials)


@dataclass(frozen=True)
class LiveHandlerDependencies:
    """Dependencies of the operations on live updates."""

    live_passwords: LivePasswordService
    broker: BrokerInfo


def build_broker_info(public_mqtt_url: str) -> BrokerInfo:
    """Return the MQTT ports that `THINGWAY_PUBLIC_MQTT_URL` contains."""
    addresses = map(urlsplit, filter(None, public_mqtt_url.split(",")))
    ports = {
        entry.scheme: entry.port or DEFAULT_PORT_BY_MQTT_SCHEME.get(entry.scheme)
        for entry in addresses
    }
    return BrokerInfo(
        ws_path=MQTT_WEBSOCKET_PATH, mqtt_port=ports.get("mqtt"), mqtts_port=ports.get("mqtts")
    )


@get("/web/credentials", guards=[users], response_headers=NO_STORE_HEADERS)
async def get_live_credentials(
    principal: RequestPrincipal, live_passwords: NamedDependency[LivePasswordService]
) -> LiveCredentials:
    """Get credentials for MQTT over WebSocket, for one page until the session ends."""
    return await live_passwords.issue_for_page(principal)


@get("/broker-info", guards=[users])
async def get_broker_info(broker: NamedDependency[BrokerInfo]) -> BrokerInfo:
    """Get the WebSocket path at the page's origin, and the public MQTT ports."""
    return broker


ROUTER = route_operations(globals(), "/mqtt", tags=["Live updates"])
