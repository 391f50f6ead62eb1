"""Settings from the environment: a frozen dataclass per service, one variable per field.

The variable of a field is `THINGWAY_` and the field's name in capitals. A value that
does not fit ends the process with one line that names the variable.
"""

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec

S = TypeVar("S")

PREFIX = "THINGWAY_"

Key = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}\\Z")]
"""32 bytes in base64url without padding, which is what a raw Ed25519 key is."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Days = Annotated[int, msgspec.Meta(ge=1, le=20_000)]
"""As many as history may be kept: they do not reach back before 1970."""
Seconds = Annotated[float, msgspec.Meta(gt=0, le=2**31 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""Per second; 0 is no limit."""


class SettingsInvalid(Exception):
    """The environment does not make valid settings; the text names each variable."""


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """What every service is told."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 0
    """Port to listen on; several workers of a service may share it (SO_REUSEPORT)."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """Least level that is logged: `DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`."""
    log_format: Literal["text", "json"] = "text"
    """`text` for people, or `json`: one object for each line."""
    tls_certificate: str = ""
    """PEM file of the certificate that the listener shows, with its chain; it is read again when it
    changes. Empty: the listener is plain."""
    tls_key: str = ""
    """PEM file of the certificate's private key, without a password."""
    ca_file: str = ""
    """PEM file of the authorities that are trusted where the platform itself connects to `tls://`,
    `mqtts://` and `https://` (NATS, other services); empty: the system's. MongoDB and Redis have
    theirs in their URLs."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One or several NATS servers, separated by commas; `tls://` for connections with TLS."""
    nats_user: str = ""
    """NATS user of this service."""
    nats_password: str = ""
    """Its password."""
    stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """NATS servers that keep each stream, MQTT's included: 3 in a cluster of three."""
    shutdown_grace: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """Seconds that requests in flight get after SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings(ServiceSettings):
    """What a service with a database is told: all but the gateway, which stands before them."""

    internal_public_key: Key
    """Ed25519 key (raw, base64url) that proves the gateway's principal header."""
    mongo_url: str = "mongodb://127.0.0.1:27017/?replicaSet=rs0&directConnection=true"
    """MongoDB, with every member of its replica set; it must be one (of one member or more),
    because the outbox needs transactions."""
    mongo_database: str = ""
    """The service's own database."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """Token state and rate limits. `redis+sentinel://user:password@h1:26379,h2:26379/NAME` asks
    Sentinels for the primary called NAME."""


def load(kind: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Read `kind` from the environment; raise `SettingsInvalid` naming every bad variable."""
    environ = os.environ if environ is None else environ
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for field in fields(kind):  # type: ignore[arg-type]
        variable = PREFIX + field.name.upper()
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
