"""Log-ins: the secrets of applications and integrations, kept as hashes, and what is counted."""

import hashlib
import hmac
import secrets
from typing import Literal

from opentelemetry import metrics

_NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()


def new_secret() -> str:
    """Make a client secret of 256 random bits, 43 characters."""
    return secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """The SHA-256 of a secret in hex.

    A slow, salted hash defends secrets that people choose. Ours are 256 random bits: nobody
    can try them all, no two are alike, and a fast hash keeps a flood of wrong log-ins cheap.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_matches(secret: str, stored: str | None) -> bool:
    """Tell whether `secret` has the hash `stored`: the same work when there is none (None)."""
    same = hmac.compare_digest(secret_hash(secret), stored or _NOBODY)
    return same and stored is not None


_meter = metrics.get_meter("thingway")
_logins = _meter.create_counter(
    "thingway_logins", description="Log-ins by door and outcome, ok or refused"
)
_tokens = _meter.create_counter("thingway_tokens_issued", description="Token pairs issued")

Door = Literal[
    "client_credentials",
    "refresh_token",
    "password",
    "user_refresh_token",
    "device",
    "nats_device",
    "nats_application",
    "nats_integration",
    "mqtt_client",
]


def count_login(door: Door, *, ok: bool) -> None:
    """Count one log-in."""
    _logins.add(1, {"door": door, "outcome": "ok" if ok else "refused"})


def count_tokens() -> None:
    """Count one pair of tokens."""
    _tokens.add(1)
