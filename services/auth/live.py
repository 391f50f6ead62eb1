"""Passwords with which pages of consoles receive live updates; they end with the log-in."""

import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
from litestar import Router
from litestar.di import NamedDependency

from libs.common.bus import RpcServer
from libs.common.contracts.mqtt import WS_PATH, LivePages, LoginRef, live_user
from libs.common.errors import Unauthenticated
from libs.common.http import Requester
from libs.common.http.console import NOT_KEPT, Shown, get
from libs.common.http.guards import users
from libs.common.http.operations import operations_of
from libs.common.identity import Principal
from libs.common.identity.tokens import live_key
from libs.common.tls import MQTT_PORTS
from services.auth.tokens.writer import TokenWriter


class LiveCredentials(msgspec.Struct):
    """Answer of `GET /mqtt/web/credentials`; shown only here."""

    client_id: str
    """Of this page alone."""
    username: str
    password: str


class BrokerInfo(Shown, kw_only=True):
    """Answer of `GET /mqtt/broker-info`.

    Neither host nor WebSocket ports: a console takes those of its page, which the gateway serves.
    """

    ws_path: str
    mqtt_port: int | None = None
    """Where devices and other clients speak MQTT; None when nobody said."""
    mqtts_port: int | None = None
    """The same over TLS."""


@dataclass(frozen=True)
class LivePasswords:
    """Issues passwords."""

    tokens: TokenWriter

    async def issue(self, user: Principal) -> LiveCredentials:
        """A password for one page of a user; raise `Unauthenticated` when the log-in has ended.

        The client id is another one for each page: of two with one id MQTT ends the first.
        """
        password, username = secrets.token_urlsafe(32), live_user(user.user_id)
        if not await self.tokens.add_page(user, live_key(password)):
            raise Unauthenticated("the log-in has ended")
        return LiveCredentials(f"{username}#{secrets.token_hex(8)}", username, password)

    async def known(self, login: LoginRef) -> LivePages:
        """Tell whether any page of a log-in has got a password."""
        return LivePages(await self.tokens.has_pages(login.family))


def offer_live(rpc: RpcServer, passwords: LivePasswords) -> None:
    """Offer `rpc.auth.has_live_pages`."""
    rpc.offer("has_live_pages", LoginRef, passwords.known)


@dataclass(frozen=True)
class LiveHandlers:
    """What the operations on live updates need."""

    live_passwords: LivePasswords
    broker: BrokerInfo


def broker_info(public_mqtt_url: str) -> BrokerInfo:
    """Where MQTT is spoken, as far as the operator has said it (`THINGWAY_PUBLIC_MQTT_URL`)."""
    found = map(urlsplit, filter(None, public_mqtt_url.split(",")))
    ports = {one.scheme: one.port or MQTT_PORTS.get(one.scheme) for one in found}
    return BrokerInfo(ws_path=WS_PATH, mqtt_port=ports.get("mqtt"), mqtts_port=ports.get("mqtts"))


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
