"""What the processes `gateway` and `gateway-bus` are told by their environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from yarl import URL

from libs.common.settings import Count, Key, Port, Rate, Seconds, ServiceSettings, SettingsInvalid

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ServiceSettings):
    """Settings of the gateway. Rates are requests per second; a rate of 0 is no limit."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    """Token state and rate limits."""
    internal_private_key: Key
    """Ed25519 key (raw, base64url) that signs the principal header."""
    upstreams: str
    """Services by name: `auth=http://127.0.0.1:8001,device=http://device:8000`."""
    watched: str = ""
    """Services that get no requests and must be ready too: `device-ingest=http://…`."""
    max_body: Count = 8 * MIB
    """Bytes of the largest request body."""
    max_header: Count = 32 * 1024
    """Bytes that the header fields of a request may take together."""
    request_timeout: Seconds = 30.0
    """Seconds until the head of the answer, and between two parts of its body."""
    connect_timeout: Seconds = 2.0
    """Seconds until a service takes a connection."""
    upstream_requests: Count = 4096
    """Requests that one service may have in hand, long polls not counted; more are refused with
    503."""
    upstream_polls: Count = 100_000
    """Long polls (`?wait=`) that one service may have in hand; a third of the files that the
    process may open is the bound when that is less."""
    address_connections: Count = 10_000
    """Connections that one address may have open to one process; a quarter of the files that the
    process may open is the bound when that is less. Those of trusted proxies are not counted."""
    address_requests: Count = 256
    """Requests without a login (signing in, hooks, pictures) of one address that may be in hand
    in one process, and as many to one hook; more are refused with 429."""
    principal_rate: Rate = 1000.0
    """Requests per second of one application, device or user."""
    principal_burst: Count = 2000
    """Requests that it may make at once."""
    address_rate: Rate = 2000.0
    """Requests per second from one address."""
    address_burst: Count = 4000
    """Requests that may come from it at once."""
    token_rate: Rate = 50.0
    """Requests per second from one address to where people and applications sign in."""
    token_burst: Count = 200
    """Requests to there that may come from one address at once."""
    websockets: Count = 10_000
    """WebSocket connections that may be open in one process; more are refused with 503. An
    eighth of the files that the process may open is the bound when that is less."""
    device_ca_file: str = ""
    """PEM file of the authority of device certificates: with one of them, a device needs no key
    over HTTPS. Empty: clients are asked for no certificate."""
    certificate_port: Port = 0
    """Port of MQTT over TLS for devices with a certificate; those with a key come in there, too.
    0: there is none."""
    certificate_nats_port: Port = 0
    """The same for plain NATS."""
    mqtt_url: str = "mqtt://127.0.0.1:1883"
    """One or several addresses where NATS takes MQTT connections, separated by commas: for those of
    `THINGWAY_CERTIFICATE_PORT`."""
    trusted_proxies: str = ""
    """Addresses and networks whose `X-Forwarded-*` are believed, separated by commas."""
    console: Literal["on", "off"] = "on"
    """Whether the console is at `/`, if it was built; else there is a page of links."""
    allowed_origins: str = ""
    """Origins of web pages that browsers let call the API (CORS), `https://console.example.com`,
    separated by commas; `*` is all of them, without cookies and logins of the browser's own."""


@dataclass(frozen=True, kw_only=True)
class RelaySettings(ServiceSettings):
    """What `gateway-bus` is told."""

    internal_public_key: Key
    """Ed25519 key (raw, base64url) that proves the gateway's principal header."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Which tenant a connection belongs to."""
    outside_nats_user: str = ""
    """User of the NATS account `OUTSIDE`: it hears devices, applications and integrations."""
    outside_nats_password: str = ""
    """Its password."""


def parse_upstreams(text: str, variable: str = "THINGWAY_UPSTREAMS") -> Mapping[str, URL]:
    """Read `name=url,name=url`; raise `SettingsInvalid` when an entry is not of that form."""
    upstreams: dict[str, URL] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = entry.partition("=")
        url = _origin(address)
        if not (name and separator and url):
            raise SettingsInvalid(f"{variable}: {entry!r} is not name=http://host:port")
        upstreams[name] = url
    return upstreams


def _origin(address: str) -> URL | None:
    try:
        url = URL(address)
    except ValueError:
        return None
    return url.origin() if url.scheme in {"http", "https"} and url.host else None
