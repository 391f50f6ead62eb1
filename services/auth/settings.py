"""Settings of `auth`."""

from dataclasses import dataclass

from libs.common.settings import StoreSettings


@dataclass(frozen=True, kw_only=True)
class AuthSettings(StoreSettings):
    """What the service is told."""

    callout_seed: str
    """Seed of the account key that signs the answers to NATS's auth callout."""
    access_token_life: int = 3600
    """Seconds that an access token lives."""
    refresh_token_life: int = 2_592_000
    """Seconds that a refresh token lives."""
