"""Settings of `auth`."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from libs.common.settings import Count, StoreSettings

MOST_DAYS = 24_855
"""As many days as MongoDB's 32 bits of seconds hold."""


@dataclass(frozen=True, kw_only=True)
class AuthSettings(StoreSettings):
    """What the service is told."""

    callout_seed: str
    """Seed of the account key that signs the answers to NATS's auth callout."""
    access_token_life: Count = 3600
    """Seconds that an access token of an application lives."""
    refresh_token_life: Count = 2_592_000
    """Seconds that a refresh token of an application lives."""
    user_access_token_life: Count = 86_400
    """Seconds that an access token of a user lives; consoles refresh theirs every hour."""
    user_refresh_token_life: Count = 604_800
    """Seconds that a refresh token of a user lives: how long one may be away and stay signed in."""
    console_client_id: str = ""
    """Client id that consoles sign people of any tenant in with; empty means that only the
    tenants' own clients are known."""
    console_client_secret: str = ""
    """Its secret."""
    audit_retention_days: Annotated[int, msgspec.Meta(ge=0, le=MOST_DAYS)] = 365
    """Days that entries of the audit log are kept; 0 keeps them for ever."""
