"""Settings of the processes `gateway` and `gateway-bus`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from yarl import URL

from libs.common.settings import (
    Count,
    KeyText,
    Port,
    Rate,
    Seconds,
    ServiceSettings,
    SettingsInvalid,
)

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ServiceSettings):
    """Settings of the gateway. Rates are requests per second; a rate of 0 is no limit."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    """Redis, for token state and rate limits."""
    internal_private_key: KeyText
    """Ed25519 key (raw, base64url) that signs the principal header."""
    upstreams: str
    """Services by name: `auth=http://127.0.0.1:8001,device=http://device:8000`."""
    watched: str = ""
    """Services that get no requests, but must be ready: `device-ingest=http://…`."""
    operations_port: Port = 0
    """Port for operators on the same address: only it answers `/metrics`, and its `/readyz` has
    reasons. With 0, the public port answers `/metrics`."""
    max_body: Count = 8 * MIB
    """Maximum bytes of a request body, at most 8 MiB. Pictures and hooks have their own maximum."""
    max_header: Count = 32 * 1024
    """Maximum bytes of the path, query and header fields of a request together."""
    request_timeout: Seconds = 30.0
    """Seconds for the body of a request and the head of its answer together, and for each further
    part of the answer. A long poll gets the seconds that it requests in addition."""
    connect_timeout: Seconds = 2.0
    """Seconds to wait for a connection to a service."""
    upstream_requests: Count = 4096
    """Maximum concurrent requests to a service, without long polls; more are rejected with 503."""
    upstream_polls: Count = 100_000
    """Maximum concurrent long polls (devices that wait for commands), but at most a third of the
    files that the process may open."""
    address_connections: Count = 10_000
    """Maximum open connections of one address to a process, but at most a quarter of the files that
    the process may open. Connections of trusted proxies are not counted."""
    address_requests: Count = 256
    """Maximum concurrent requests without a login (sign-in, webhooks, pictures) of one address to a
    process, and also to one webhook; more are rejected with 429."""
    principal_rate: Rate = 1000.0
    """Requests per second of one application, device or user."""
    principal_burst: Count = 2000
    """Requests that one application, device or user may send in a burst."""
    address_rate: Rate = 2000.0
    """Requests per second from one address."""
    address_burst: Count = 4000
    """Requests that one address may send in a burst."""
    token_rate: Rate = 50.0
    """Sign-in requests per second of users and applications from one address."""
    token_burst: Count = 200
    """Sign-in requests that one address may send in a burst."""
    websockets: Count = 10_000
    """Maximum open WebSocket connections of a process, but at most an eighth of the files that the
    process may open; more are rejected with 503."""
    device_ca_file: str = ""
    """PEM file of the authority of device certificates: a device with such a certificate needs no
    key over HTTPS. If empty, clients are not asked for certificates."""
    certificate_port: Port = 0
    """Port of MQTT over TLS for devices with a certificate or a key; 0 disables it."""
    certificate_nats_port: Port = 0
    """Port of NATS over TLS for devices with a certificate or a key; 0 disables it."""
    mqtt_url: str = "mqtt://127.0.0.1:1883"
    """One or several MQTT addresses of NATS, separated by commas, for connections to
    `THINGWAY_CERTIFICATE_PORT`."""
    trusted_proxies: str = ""
    """Addresses and networks of proxies whose `X-Forwarded-*` headers are trusted, separated by
    commas."""
    hsts: Literal["auto", "on", "off"] = "auto"
    """Whether browsers must use TLS for this host and its subdomains for a year
    (`Strict-Transport-Security`). `auto`: if the gateway has a certificate and `THINGWAY_HOST` is
    not a loopback address. `on`: always, for example because a proxy terminates TLS. `off`: never,
    for example because browsers on this machine use `localhost` for other servers, too."""
    console: Literal["on", "off"] = "on"
    """Whether to serve the console at `/`, if it was built; otherwise `/` is a page of links."""
    allowed_origins: str = ""
    """Origins of web pages that may call the API in browsers (CORS), such as
    `https://console.example.com`, separated by commas; `*` permits all origins, without cookies and
    logins of the browser."""


@dataclass(frozen=True, kw_only=True)
class RelaySettings(ServiceSettings):
    """Settings of `gateway-bus`."""

    internal_public_key: KeyText
    """Ed25519 key (raw, base64url) that verifies the gateway's principal header."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Redis, for the tenants of connections."""
    outside_nats_user: str = ""
    """User of the NATS account `OUTSIDE`, who receives messages of devices, applications and
    integrations."""
    outside_nats_password: str = ""
    """Password of `THINGWAY_OUTSIDE_NATS_USER`."""


def parse_upstreams(text: str, variable: str = "THINGWAY_UPSTREAMS") -> Mapping[str, URL]:
    """Return the services in `name=url,name=url`; raise `SettingsInvalid`."""
    upstreams: dict[str, URL] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = entry.partition("=")
        url = _parse_origin(address)
        if not (name and separator and url):
            raise SettingsInvalid(f"{variable}: {entry!r} must be name=http://host:port")
        upstreams[name] = url
    return upstreams


def _parse_origin(address: str) -> URL | None:
    try:
        url = URL(address)
    except ValueError:
        return None
    return url.origin() if url.scheme in {"http", "https"} and url.host else None
