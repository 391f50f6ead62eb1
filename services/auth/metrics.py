"""What `auth` counts: log-ins by door and outcome, and tokens issued."""

from typing import Literal

from opentelemetry import metrics

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
