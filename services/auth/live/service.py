"""Gives pages of consoles the passwords with which they hear live updates."""

import secrets
from urllib.parse import urlsplit

import msgspec

from libs.common.bus import RpcServer
from libs.common.contracts.mqtt import WS_PATH, LivePages, LoginRef, live_user
from libs.common.errors import Unauthenticated
from libs.common.http.console import Shown
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


class LivePasswords:
    """Issues passwords."""

    def __init__(self, tokens: TokenWriter) -> None:
        self._tokens = tokens

    async def issue(self, user: Principal) -> LiveCredentials:
        """A password for one page of a user; raise `Unauthenticated` when the log-in has ended.

        The client id is another one for each page: of two with one id MQTT ends the first.
        """
        password, username = secrets.token_urlsafe(32), live_user(user.user_id)
        if not await self._tokens.add_page(user, live_key(password)):
            raise Unauthenticated("the log-in has ended")
        return LiveCredentials(f"{username}#{secrets.token_hex(8)}", username, password)

    async def known(self, login: LoginRef) -> LivePages:
        """Tell whether any page of a log-in has got a password."""
        return LivePages(await self._tokens.has_pages(login.family))


def offer_live(rpc: RpcServer, tokens: TokenWriter) -> LivePasswords:
    """Offer `rpc.auth.has_live_pages`; return the service."""
    service = LivePasswords(tokens)
    rpc.offer("has_live_pages", LoginRef, service.known)
    return service


def broker_info(public_mqtt_url: str) -> BrokerInfo:
    """Where MQTT is spoken, as far as the operator has said it (`THINGWAY_PUBLIC_MQTT_URL`)."""
    found = map(urlsplit, filter(None, public_mqtt_url.split(",")))
    ports = {one.scheme: one.port or MQTT_PORTS.get(one.scheme) for one in found}
    return BrokerInfo(ws_path=WS_PATH, mqtt_port=ports.get("mqtt"), mqtts_port=ports.get("mqtts"))
