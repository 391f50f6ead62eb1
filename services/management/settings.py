"""Settings of `management`."""

from dataclasses import dataclass

from libs.common.settings import StoreSettings


@dataclass(frozen=True, kw_only=True)
class ManagementSettings(StoreSettings):
    """What the service is told."""
