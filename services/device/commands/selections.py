"""Property updates of many devices on behalf of users: one result for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from services.device.commands.model import Command, Draft
from services.device.commands.service import CommandService
from services.device.things import ThingDirectory
from services.device.things.store import DeviceStore

Configured = dict[int, Command | ThingwayError]
"""Devices by id, each with its task or with what went wrong."""


@dataclass(frozen=True)
class Selections:
    """Asks each device of a selection to take on the same properties."""

    commands: CommandService
    devices: DeviceStore
    things: ThingDirectory
    grants: GrantReader

    async def configure(
        self, principal: Principal, ids: Sequence[int], properties: dict[str, Any]
    ) -> Configured:
        """Write a task for each device that the user sees and whose TSL takes the properties.

        All of these are written, or none. Raises `TooLarge` for too many bytes.
        """
        grants = await self.grants.of(principal)
        results: Configured = {
            one: NotFound(f"device {one} not found", field="device_id") for one in ids
        }
        drafts: list[Draft] = []
        found = await self.devices.find_all(principal.tenant, ids)
        seen = [one for one in found if grants.device(one.id, one.integration, one.group)]
        for thing in await self.things.things(seen):
            try:
                drafts.append(await self.commands.check_properties(thing, properties))
            except InvalidInput as error:
                results[thing.id] = error
        if drafts:
            commands = await self.commands.issue(principal, drafts)
            results.update({command.thing_id: command for command in commands})
        return results
