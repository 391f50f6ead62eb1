"""What tenants set of a broker: properties of the integration, and secrets beside them."""

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificates

from libs.common.contracts.integrations import NOT_SET
from libs.common.errors import InvalidInput
from libs.common.http.outgoing import LONGEST_URL, may_be_called, not_public
from libs.common.tls import ENCRYPTED, MQTT_PORTS
from services.management.networks.store import HOOK, NetworkStore
from services.management.tsl import Part, text_property

BROKER, USERNAME, CA, CERTIFICATE = "broker", "username", "ca", "certificate"
PASSWORD, PRIVATE_KEY = "password", "private_key"
UNSET = "is not set for this broker and user name: give it"
SECRETS = (PASSWORD, PRIVATE_KEY)
LONGEST_PEM = 16_384
LONGEST_TEXT = 255
LONGEST_TOKEN = 128
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}")
_FEWEST_CHARACTERS = 10
"""Different ones of a token that may be random."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """An MQTT broker, and as whom it is connected to."""

    host: str
    port: int
    tls: bool
    username: str = ""
    ca: str = ""
    """PEM of whom to trust; empty for the authorities of the system."""
    certificate: str = ""
    password: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext | None:
        """What TLS is made with; raise `InvalidInput` naming the property at fault."""
        if not self.tls:
            return None
        context = _trusting(self.ca)
        if self.certificate:
            try:
                _load(context, self.certificate, self.private_key)
            except ssl.SSLError as error:
                text = f"does not go with private_key: {error.reason or error}"
                raise InvalidInput(text, field=CERTIFICATE) from error
        return context


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(f"is no certificate in PEM: {error}", field=CA) from error


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """OpenSSL takes them of a file only; it is ours alone, and gone at once."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()


def broker_properties() -> list[Part]:
    """The settings of a broker, for a manifest."""
    return [
        text_property(
            BROKER, "Broker", "RW", "Of its MQTT: mqtts://host:8883 or mqtt://…", LONGEST_URL
        ),
        text_property(
            USERNAME, "User name", "RW", "Empty when the broker asks for none", LONGEST_TEXT
        ),
        text_property(
            PASSWORD,
            "Password",
            "W",
            "Never shown; empty leaves it as it is; it is given anew with another broker or user",
            4096,
        ),
        text_property(
            CA, "CA certificate", "RW", "PEM, for a broker of your own authority", LONGEST_PEM
        ),
        text_property(
            CERTIFICATE, "Client certificate", "RW", "PEM, if the broker asks for one", LONGEST_PEM
        ),
        text_property(
            PRIVATE_KEY,
            "Private key",
            "W",
            "PEM without a password, of the client certificate; never shown",
            LONGEST_PEM,
        ),
    ]


def hook_property() -> Part:
    """The token of a webhook, for a manifest."""
    text = (
        "Random: 32 to 128 letters, digits, - and _; the address is /integration/hooks/ and it; "
        "never shown; a new one ends the old"
    )
    return text_property(HOOK, "Webhook token", "W", text, LONGEST_TOKEN)


def parse_broker(text: str, allowed: tuple[str, ...]) -> tuple[str, int, bool]:
    """Host, port and whether it is TLS; raise `InvalidInput` for what may not be called."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"is no address: {error}", field=BROKER) from error
    if parts.scheme not in MQTT_PORTS or not host or parts.path.strip("/") or parts.query:
        raise InvalidInput("must be mqtts://host:port or mqtt://host:port", field=BROKER)
    if parts.username is not None:
        raise InvalidInput("must have no login: username and password are for it", field=BROKER)
    if not may_be_called(host, allowed):
        raise InvalidInput(not_public(host), field=BROKER)
    return host, port or MQTT_PORTS[parts.scheme], parts.scheme in ENCRYPTED


def check_settings(given: dict[str, Any], allowed: tuple[str, ...]) -> None:
    """Judge settings as they are given; raise `InvalidInput` naming the property."""
    if text := given.get(BROKER):
        parse_broker(text, allowed)
    if text := given.get(HOOK):
        random = _TOKEN.fullmatch(text) and len(set(text)) >= _FEWEST_CHARACTERS
        if not random:
            raise InvalidInput("must be 32 to 128 random letters, digits, - and _", field=HOOK)
    if text := given.get(CA):
        _trusting(text)
    if text := given.get(CERTIFICATE):
        with _named(CERTIFICATE, "is no certificate in PEM"):
            load_pem_x509_certificates(text.encode())
    if text := given.get(PRIVATE_KEY):
        with _named(PRIVATE_KEY, "is no private key in PEM without a password"):
            load_pem_private_key(text.encode(), None)


@contextlib.contextmanager
def _named(name: str, text: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InvalidInput(text, field=name) from error


def describe_owner(values: dict[str, Any]) -> str:
    """What secrets of a broker are given for."""
    return f"{read_text(values, USERNAME)} {read_text(values, BROKER)}"


def read_text(values: dict[str, Any], name: str) -> str:
    """A setting, without the blanks around it; empty when it is not set."""
    return str(values.get(name) or "").strip()


async def read_broker(
    store: NetworkStore, tenant: str, values: dict[str, Any], allowed: tuple[str, ...]
) -> Broker | None:
    """The broker that a tenant has set, None when it has set none.

    Raises `InvalidInput` naming the property that is missing or does not fit.
    """
    if not read_text(values, BROKER):
        return None
    host, port, tls = parse_broker(read_text(values, BROKER), allowed)
    bound = describe_owner(values)
    password, key = [await store.find_secret(tenant, name, bound) or "" for name in SECRETS]
    for name, secret, field_name in (
        (USERNAME, password, PASSWORD),
        (CERTIFICATE, key, PRIVATE_KEY),
    ):
        if read_text(values, name) and not secret:
            raise InvalidInput(UNSET, field=field_name, code=NOT_SET)
    broker = Broker(
        host=host,
        port=port,
        tls=tls,
        username=read_text(values, USERNAME),
        password=password,
        ca=read_text(values, CA),
        certificate=read_text(values, CERTIFICATE),
        private_key=key,
    )
    broker.context()
    return broker
