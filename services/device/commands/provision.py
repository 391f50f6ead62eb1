"""Auto-provision: a device is added together with its first configuration."""

from typing import Any

import msgspec

from libs.common.errors import InvalidInput
from libs.common.identity import Kind, Principal
from services.device.commands.model import Draft
from services.device.commands.schemas import Config
from services.device.commands.service import CommandService
from services.device.things import ThingDirectory
from services.device.things.model import Device


class CommandProvisioner:
    """Checks a first configuration, and sends it as a task."""

    def __init__(self, things: ThingDirectory, commands: CommandService) -> None:
        self._things = things
        self._commands = commands

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        """Raise `InvalidInput` when the device's TSL does not accept `config`."""
        await self._draft(device, config)

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        """Write the task for a device that has just been added."""
        principal = Principal(
            kind=Kind.APPLICATION, tenant=device.tenant, subject=str(device.application_id)
        )
        await self._commands.issue(principal, [await self._draft(device, config)])

    async def _draft(self, device: Device, config: dict[str, Any]) -> Draft:
        try:
            wire = msgspec.convert(config, Config)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error).replace("`", "'"), field="config") from error
        return await self._commands.check_config(await self._things.thing(device), wire)
