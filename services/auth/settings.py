"""Settings of `auth`."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from libs.common.contracts.limits import Limits
from libs.common.settings import Count, SettingsInvalid, StoreSettings
from libs.common.store.mongo import MOST_DAYS


@dataclass(frozen=True, kw_only=True)
class AuthSettings(StoreSettings):
    """What the service is told."""

    callout_seed: str
    """Seed of the account key that signs the answers to NATS's auth callout."""
    mqtt_url: str = "mqtt://127.0.0.1:1883"
    """One or several addresses where NATS takes MQTT connections, separated by commas: abandoned
    sessions of devices are deleted there."""
    public_mqtt_url: str = ""
    """Where clients outside reach MQTT, as consoles show it: `mqtt://` and `mqtts://` addresses,
    separated by commas; empty: consoles show nothing."""
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
    console: Literal["on", "off"] = "on"
    """Whether people may sign in at the console of the gateway, with its public client."""
    tenant_limits: str = ""
    """Limits of tenants that have none of their own, as a JSON object with those that differ
    from the platform's: `{"requests": 512, "eachPolls": 2}`."""
    audit_retention_days: Annotated[int, msgspec.Meta(ge=0, le=MOST_DAYS)] = 365
    """Days that entries of the audit log are kept; 0 keeps them for ever."""

    def __post_init__(self) -> None:
        """Raise `SettingsInvalid` for limits that cannot be read."""
        self.default_limits  # noqa: B018 - it is read again where it is needed

    @property
    def default_limits(self) -> Limits:
        """The limits of tenants that have none of their own."""
        try:
            return msgspec.json.decode(self.tenant_limits or "{}", type=Limits)
        except msgspec.DecodeError as error:
            raise SettingsInvalid(f"THINGWAY_TENANT_LIMITS: {error}") from error
