"""Broker settings of tenants, as properties and separate secrets; webhooks."""

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import PathParameter

from libs.common.bus import RawRequest, RpcClient
from libs.common.contracts.frames import MAX_HOOK_BYTES
from libs.common.contracts.integrations import MISSING_SETTING_CODE, Acknowledged
from libs.common.errors import InvalidInput, NotFound, TooLarge
from libs.common.http import HttpRequest, build_dependencies
from libs.common.http.console import post
from libs.common.http.outgoing import describe_blocked_host, is_host_allowed
from libs.common.store.mongo import Database
from libs.common.tls import DEFAULT_PORT_BY_MQTT_SCHEME, TLS_SCHEMES, trusting_context
from services.management.networks.store import (
    WEBHOOK_SETTING,
    NetworkStore,
    find_hook_tenant_and_integration,
)

BROKER, USERNAME, CA, CERTIFICATE = "broker", "username", "ca", "certificate"
PASSWORD, PRIVATE_KEY = "password", "private_key"
UNSET_CREDENTIAL_TEXT = "is not set for this broker and user name: enter it"
BROKER_SECRET_SETTINGS = (PASSWORD, PRIVATE_KEY)
_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9_-]{32,128}")
_MIN_DISTINCT_CHARACTERS = 10
"""Minimum number of distinct characters of a random token."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """An MQTT broker, and the credentials for it."""

    host: str
    port: int
    tls: bool
    username: str = ""
    ca: str = ""
    """PEM of the trusted authorities; if empty, the authorities of the system."""
    certificate: str = ""
    password: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)

    def build_tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None without TLS.

        Raises `InvalidInput` for an invalid property.
        """
        if not self.tls:
            return None
        context = _build_trusting_context(self.ca)
        if self.certificate:
            try:
                _load_client_certificate(context, self.certificate, self.private_key)
            except ssl.SSLError as error:
                text = f"does not match private_key: {error.reason or error}"
                raise InvalidInput(text, field=CERTIFICATE) from error
        return context


def _build_trusting_context(ca: str) -> ssl.SSLContext:
    try:
        return trusting_context(ca_pem=ca)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(f"must be a certificate in PEM: {error}", field=CA) from error


def _load_client_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load certificate and key from a temporary file, which OpenSSL requires."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()


def parse_broker_address(text: str, allowed_networks: tuple[str, ...]) -> tuple[str, int, bool]:
    """Return host, port and whether to use TLS of a broker's URL; raise `InvalidInput`."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"is not a URL: {error}", field=BROKER) from error
    if (
        parts.scheme not in DEFAULT_PORT_BY_MQTT_SCHEME
        or not host
        or parts.path.strip("/")
        or parts.query
    ):
        raise InvalidInput("must be mqtts://host:port or mqtt://host:port", field=BROKER)
    if parts.username is not None:
        raise InvalidInput("must not have a login: use username and password", field=BROKER)
    if not is_host_allowed(host, allowed_networks):
        raise InvalidInput(describe_blocked_host(host), field=BROKER)
    return host, port or DEFAULT_PORT_BY_MQTT_SCHEME[parts.scheme], parts.scheme in TLS_SCHEMES


def check_broker_settings(properties: dict[str, Any], allowed_networks: tuple[str, ...]) -> None:
    """Check the given settings; raise `InvalidInput` for an invalid property."""
    if text := properties.get(BROKER):
        parse_broker_address(text, allowed_networks)
    if text := properties.get(WEBHOOK_SETTING):
        random = _TOKEN_PATTERN.fullmatch(text) and len(set(text)) >= _MIN_DISTINCT_CHARACTERS
        if not random:
            raise InvalidInput(
                "must be 32 to 128 random letters, digits, - and _", field=WEBHOOK_SETTING
            )
    if text := properties.get(CA):
        _build_trusting_context(text)
    if text := properties.get(CERTIFICATE):
        with _name_setting_in_errors(CERTIFICATE, "must be a certificate in PEM"):
            load_pem_x509_certificates(text.encode())
    if text := properties.get(PRIVATE_KEY):
        with _name_setting_in_errors(
            PRIVATE_KEY, "must be a private key in PEM without a password"
        ):
            load_pem_private_key(text.encode(), None)


@contextlib.contextmanager
def _name_setting_in_errors(name: str, text: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InvalidInput(text, field=name) from error


def build_secret_binding(values: dict[str, Any]) -> str:
    """Return user name and broker as one text, which is stored with secrets entered for them."""
    return f"{read_setting(values, USERNAME)} {read_setting(values, BROKER)}"


def read_setting(values: dict[str, Any], name: str) -> str:
    """Return a setting without surrounding blanks; empty if it is not set."""
    return str(values.get(name) or "").strip()


async def read_broker(
    store: NetworkStore, tenant: str, values: dict[str, Any], allowed_networks: tuple[str, ...]
) -> Broker | None:
    """Return the broker of a tenant; None if no broker is set.

    Raises `InvalidInput` for a missing or invalid property.
    """
    if not read_setting(values, BROKER):
        return None
    host, port, tls = parse_broker_address(read_setting(values, BROKER), allowed_networks)
    bound_to = build_secret_binding(values)
    password, key = [
        await store.find_secret(tenant, name, bound_to) or "" for name in BROKER_SECRET_SETTINGS
    ]
    for name, secret, field_name in (
        (USERNAME, password, PASSWORD),
        (CERTIFICATE, key, PRIVATE_KEY),
    ):
        if read_setting(values, name) and not secret:
            raise InvalidInput(UNSET_CREDENTIAL_TEXT, field=field_name, code=MISSING_SETTING_CODE)
    broker = Broker(
        host=host,
        port=port,
        tls=tls,
        username=read_setting(values, USERNAME),
        password=password,
        ca=read_setting(values, CA),
        certificate=read_setting(values, CERTIFICATE),
        private_key=key,
    )
    broker.build_tls_context()
    return broker


PUBLIC_PATHS = frozenset({"/integration/hooks/"})
"""Paths without a principal."""


@dataclass(frozen=True)
class WebhookForwarder:
    """Forwards webhook requests to the replica that runs their integration."""

    database: Database
    rpc: RpcClient

    async def forward(self, token: str, body: bytes) -> None:
        """Forward a body; return when its content is stored.

        Raises `NotFound`, `InvalidInput` for the body, and errors after which the sender should
        retry.
        """
        hook = await find_hook_tenant_and_integration(self.database, token)
        if hook is None:
            raise NotFound("the webhook does not exist", field="token")
        tenant, integration = hook
        call = RawRequest(tenant, body)
        await self.rpc.call(f"rpc.integration.{integration}.hook", call, Acknowledged)


@post(
    "/integration/hooks/{token:str}",
    body=Any,
    example={"devEui": "24e124136b502217", "port": 85, "counter": 17, "data": "AXVkA2fXAA=="},
    request_max_body_size=MAX_HOOK_BYTES,
    tags=["Integrations"],
    waits=True,
    summary="Receive webhook of integration",
)
async def take_hook(
    request: HttpRequest,
    network_hooks: NamedDependency[WebhookForwarder],
    token: Annotated[str, PathParameter(description="Token of the integration.")],
) -> None:
    """Receive an uplink, a join or the state of a downlink; it is stored before the answer.

    The body is JSON of at most 64 KiB for the integration with this token: a message of The Things
    Stack, or a message that the mapping of `webhook` matches. The token is the only credential.
    """
    body = await request.body()
    if len(body) > MAX_HOOK_BYTES:
        raise TooLarge(f"the body has more than {MAX_HOOK_BYTES} bytes", field="body")
    await network_hooks.forward(token, body)


@dataclass(frozen=True)
class HookHandlerDependencies:
    """Dependencies of the handlers."""

    network_hooks: WebhookForwarder


def create_router(database: Database, rpc: RpcClient) -> Router:
    """Return the router of the operations, with their dependencies."""
    handlers = HookHandlerDependencies(WebhookForwarder(database, rpc))
    return Router("/", route_handlers=[take_hook], dependencies=build_dependencies(handlers))
