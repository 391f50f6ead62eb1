"""Stands for the integrations, none of which carries commands."""

from collections.abc import Iterable

from services.device.commands.model import Command


class NoCarrier:
    """Every command goes to its device."""

    async def carries(self, integration: str) -> bool:
        """Say no."""
        del integration
        return False

    def send(self, commands: Iterable[Command], additional: object = None) -> None:
        """Have nothing to hand over."""
        del additional
        assert not [command for command in commands if command.carrier]
