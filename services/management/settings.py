"""Settings of `management`."""

from dataclasses import dataclass

from libs.common.settings import Key, StoreSettings


@dataclass(frozen=True, kw_only=True)
class ManagementSettings(StoreSettings):
    """What the service is told."""

    secrets_key: Key
    """Key (32 bytes, base64url) of the secrets that people entrust to integrations."""
    outgoing_networks: str = ""
    """Networks that are not public and that people may have the platform call all the same,
    separated by commas (`10.1.0.0/16,127.0.0.1`)."""
