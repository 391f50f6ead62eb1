"""Settings of `auth`."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from libs.common.bus.streams import PartitionCount
from libs.common.contracts.limits import Limits
from libs.common.settings import Count, SettingsInvalid, StoreSettings
from libs.common.store.migrations import MAX_RETENTION_DAYS


@dataclass(frozen=True, kw_only=True)
class AuthSettings(StoreSettings):
    """Settings of `auth`."""

    callout_seed: str
    """Seed of the account key that signs the answers to NATS's auth callout."""
    mqtt_url: str = "mqtt://127.0.0.1:1883"
    """MQTT addresses of NATS, separated by commas, for deleting abandoned sessions of devices."""
    public_mqtt_url: str = ""
    """Public `mqtt://` and `mqtts://` addresses that consoles show, separated by commas. Empty:
    consoles show none."""
    access_token_life: Count = 3600
    """Lifetime of an application's access token, in seconds."""
    refresh_token_life: Count = 2_592_000
    """Lifetime of an application's refresh token, in seconds."""
    user_access_token_life: Count = 86_400
    """Lifetime of a user's access token, in seconds. Consoles refresh it every hour."""
    user_refresh_token_life: Count = 604_800
    """Lifetime of a user's refresh token, in seconds: how long an inactive user stays logged in."""
    console_client_id: str = ""
    """Client id of other consoles that serve all tenants; if empty, only the built-in one does."""
    console_client_secret: str = ""
    """Secret of the client `THINGWAY_CONSOLE_CLIENT_ID`."""
    console: Literal["on", "off"] = "on"
    """Whether users may log in at the built-in console of the gateway."""
    tenant_limits: str = ""
    """Default limits of tenants, as a JSON object of the limits that differ from the platform's:
    `{"requests": 512, "eachPolls": 2}`."""
    events_partitions: PartitionCount = 1
    """Number of streams that share the events, 1 to 16. The events of a device are in one of
    them."""
    audit_retention_days: Annotated[int, msgspec.Meta(ge=0, le=MAX_RETENTION_DAYS)] = 365
    """Retention of audit log entries in days. 0 keeps them forever."""

    def __post_init__(self) -> None:
        """Raise `SettingsInvalid` for invalid limits."""
        self.default_limits  # noqa: B018 - validates the limits

    @property
    def default_limits(self) -> Limits:
        """Return the limits of tenants without individual ones; raise `SettingsInvalid`."""
        try:
            return msgspec.json.decode(self.tenant_limits or "{}", type=Limits)
        except msgspec.DecodeError as error:
            raise SettingsInvalid(f"THINGWAY_TENANT_LIMITS: {error}") from error
