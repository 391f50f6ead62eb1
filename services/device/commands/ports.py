"""What commands ask of a package above: a named interface, implemented there."""

from abc import abstractmethod
from typing import Protocol

from services.device.commands.model import Command, SentDownlink


class DownlinkEncoder(Protocol):
    """Makes bytes of commands for devices that take no other."""

    @abstractmethod
    async def check(self, tenant: str, model: str) -> None:
        """Raise `CodecFailed` for a product without a codec that encodes."""

    @abstractmethod
    async def encode(self, command: Command, model: str) -> list[SentDownlink]:
        """Return the bytes of a command for its device; raise `CodecFailed`."""
