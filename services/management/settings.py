"""Settings of `management`."""

from dataclasses import dataclass

from libs.common.settings import KeyText, StoreSettings


@dataclass(frozen=True, kw_only=True)
class ManagementSettings(StoreSettings):
    """Settings of `management`."""

    secrets_key: KeyText
    """Key (32 bytes, base64url) that encrypts the secrets of integrations."""
    outgoing_networks: str = ""
    """Non-public networks that users may let the platform call, separated by commas
    (`10.1.0.0/16,127.0.0.1`). With the entry `only`, public addresses outside of these networks are
    blocked (`only,203.0.113.0/24`)."""
