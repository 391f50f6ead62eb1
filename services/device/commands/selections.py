"""What users ask of devices: property updates of many, one result for each; and what was asked."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.contracts.events import TaskStatus
from libs.common.errors import NotFound, ThingwayError
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.tsl import TslDocument
from services.device.commands.model import Command, Draft
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import GrantedDevices, ThingDirectory
from services.device.things.model import Thing

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
        found = await self.devices.find_all(principal.tenant, ids)
        seen = [one for one in found if grants.device(one.id, one.integration, one.group)]
        drafts: list[Draft] = []
        things = await self.things.things(seen)
        checked = await self.commands.check_properties([(thing, properties) for thing in things])
        for thing, draft in zip(things, checked, strict=True):
            if isinstance(draft, Draft):
                drafts.append(draft)
            else:
                results[thing.id] = draft
        if drafts:
            commands = await self.commands.issue(principal, drafts)
            results.update({command.thing_id: command for command in commands})
        return results


@dataclass(frozen=True)
class DeviceCommands:
    """What one device that a user sees is asked to do, and what it was asked."""

    commands: CommandService
    store: CommandStore
    devices: GrantedDevices
    things: ThingDirectory

    async def page(
        self,
        principal: Principal,
        device_id: int,
        statuses: Sequence[TaskStatus],
        skip: int,
        limit: int,
    ) -> tuple[AsyncGenerator[Command, None], int]:
        """Up to `limit` commands of any of `statuses`, the newest first, and how many there are.

        No `statuses` are all of them. Of earlier owners' commands none is shown.
        """
        device = await self.devices.find(principal, device_id)
        commands, total = await self.store.page(device, statuses, skip, limit)
        tsl = (await self.things.thing(device)).tsl
        return (command.readable_by(tsl) async for command in commands), total

    async def tsl(self, principal: Principal, device_id: int) -> TslDocument:
        """The TSL that a device follows."""
        return (await self._thing(principal, device_id)).tsl.document

    async def update(
        self, principal: Principal, device_id: int, properties: dict[str, Any]
    ) -> Command:
        """Ask a device to take on properties; a single bad one refuses them all."""
        thing = await self._thing(principal, device_id)
        return await self.commands.update_thing(principal, thing, properties)

    async def call(
        self, principal: Principal, device_id: int, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Ask a device to run a service of its TSL."""
        thing = await self._thing(principal, device_id)
        draft = self.commands.check_call(thing, service_id, inputs)
        (command,) = await self.commands.issue(principal, [draft])
        return command

    async def _thing(self, principal: Principal, device_id: int) -> Thing:
        return await self.things.thing(await self.devices.find(principal, device_id))
