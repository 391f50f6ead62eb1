"""Settings from environment variables: a frozen dataclass per service, a variable per field.

The variable of a field is `THINGWAY_` and the field's name in capitals. An invalid value ends the
process with one line that names the variable.
"""

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec

S = TypeVar("S")

VARIABLE_PREFIX = "THINGWAY_"

KeyText = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}\\Z")]
"""32 bytes in base64url without padding, such as a raw Ed25519 key."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Days = Annotated[int, msgspec.Meta(ge=1, le=20_000)]
"""Retention in days. A longer one would reach back to times before 1970."""
Seconds = Annotated[float, msgspec.Meta(gt=0, le=2**31 - 1)]
StorageSize = Annotated[str, msgspec.Meta(pattern="^([0-9]+[KMGT]i)?\\Z")]
"""A number of bytes such as `20Gi`; empty if unknown."""
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""Per second; 0 means no limit."""


class SettingsInvalid(Exception):
    """Environment variables are missing or invalid; the message lists each variable."""


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Settings of every service."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 0
    """Port to listen on; several workers of a service may share it (SO_REUSEPORT)."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """Lowest level that is logged: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    log_format: Literal["text", "json"] = "text"
    """`text` for people, or `json` with one object per line."""
    tls_certificate: str = ""
    """PEM file of the listener's certificate, with its chain; read again when it changes. If empty,
    the listener does not use TLS."""
    tls_key: str = ""
    """PEM file of the certificate's private key, without a password."""
    ca_file: str = ""
    """PEM file of the authorities that are trusted for outgoing connections to `tls://`, `mqtts://`
    and `https://` (NATS, other services); if empty, the system's authorities. MongoDB and Redis
    have this option in their URLs."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One or several NATS servers, separated by commas; `tls://` for connections with TLS."""
    nats_user: str = ""
    """NATS user of this service."""
    nats_password: str = ""
    """Password of the NATS user."""
    stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Number of NATS servers that store each stream, including those of MQTT: 3 in a cluster of
    three."""
    replicas: Count = 1
    """Number of processes of this service that should run. An alert fires when fewer do."""
    shutdown_grace: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """Seconds for which current requests may continue after SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings(ServiceSettings):
    """Settings of a service with a database, which is every service but the gateway."""

    internal_public_key: KeyText
    """Ed25519 key (raw, base64url) that verifies the gateway's principal header."""
    mongo_url: str = "mongodb://127.0.0.1:27017/?replicaSet=rs0&directConnection=true"
    """URL of MongoDB with every member of its replica set. A replica set (of one or more members)
    is required, because the outbox uses transactions."""
    mongo_database: str = ""
    """Database of the service; if empty, `thingway_` and the service's name."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Redis of `auth` and `management`, for token state and rate limits.
    `redis+sentinel://user:password@h1:26379,h2:26379/NAME` finds the primary called NAME with
    Sentinels."""


def load_settings(kind: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Return the settings `kind` from the environment; raise `SettingsInvalid`."""
    environ = os.environ if environ is None else environ
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in fields(kind):  # type: ignore[arg-type]
        variable = VARIABLE_PREFIX + field.name.upper()
        raw = environ.get(variable)
        if raw is None:
            if field.default is MISSING and field.default_factory is MISSING:
                faults.append(f"{variable} is not set")
            continue
        try:
            values[field.name] = msgspec.convert(raw, hints[field.name], strict=False)
        except msgspec.ValidationError as error:
            faults.append(f"{variable}: {error}")
    if faults:
        raise SettingsInvalid("; ".join(faults))
    return kind(**values)
