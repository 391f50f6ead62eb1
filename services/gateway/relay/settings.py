"""Settings of `gateway-bus`."""

from dataclasses import dataclass

from libs.common.settings import Key, ServiceSettings


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
