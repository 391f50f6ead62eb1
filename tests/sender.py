"""A sender for tests without integrations that deliver commands."""

from collections.abc import Iterable

from libs.common.integrations.client import CommandTransport
from services.device.commands.model import Command


class NoIntegrationSender:
    """Sends nothing, because devices receive all commands directly."""

    async def get_transport(self, integration: str) -> CommandTransport:
        """Say no."""
        del integration
        return ""

    async def check_encoders(self, products: Iterable[tuple[str, str]]) -> None:
        """Have nothing to check."""
        assert not list(products)

    def send(self, commands: Iterable[Command], additional: object = None) -> None:
        """Have nothing to hand over."""
        del additional
        assert not [command for command in commands if command.carrier]
