"""Hands commands to integrations that carry them to their devices.

It is done beside the request: a command that an integration did not take is handed over again
by the delivery, until its device answers or its time is over.
"""

import asyncio
import logging
from collections.abc import Iterable

from libs.common.contracts.integrations import Acknowledged, DeviceCommand, DeviceRef
from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError
from services.device.commands.messages import finished
from services.device.commands.model import Command, now
from services.device.commands.writer import CommandWriter
from services.device.things.integrations import IntegrationClient, Integrations
from services.device.things.store import DeviceStore

log = logging.getLogger(__name__)

SECONDS = 5.0
"""How long an integration may take to accept a command."""
LONGEST_ERROR = 1000
REFUSALS = range(400, 500)
"""Statuses by which an integration says that it will not carry a command."""


class CommandCarrier:
    """Hands commands over, each in a task of its own."""

    def __init__(
        self,
        devices: DeviceStore,
        integrations: Integrations,
        client: IntegrationClient,
        writer: CommandWriter,
    ) -> None:
        self._devices = devices
        self._integrations = integrations
        self._client = client
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()

    async def carries(self, integration: str) -> bool:
        """Whether commands go to the integration instead of to the device."""
        return await self._integrations.carries(integration)

    def send(self, commands: Iterable[Command]) -> None:
        """Hand over those that are carried, without waiting."""
        for command in commands:
            if command.carrier:
                task = asyncio.ensure_future(self._carry(command, command.carrier))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _carry(self, command: Command, carrier: str) -> None:
        try:
            wanted = DeviceCommand(device=await self._ref(command), command=command.wire())
            await self._client.ask(carrier, "command", wanted, Acknowledged, SECONDS)
        except ThingwayError as error:
            if error.status in REFUSALS:
                await self._refuse(command, error.text)
            else:
                log.warning("command %d waits: %s", command.id, error)
        except StoreError as error:
            log.warning("command %d waits: %s", command.id, error)

    async def _ref(self, command: Command) -> DeviceRef:
        """The device as its integration knows it; read anew when the command comes again."""
        name, model, additional = command.profile.name, command.profile.model, command.additional
        if additional is None:
            device = await self._devices.with_id(command.thing_id)
            name, model = (device.name, device.model) if device else ("", "")
            additional = device.additional if device else None
        return DeviceRef(
            tenant=command.tenant,
            device_id=command.thing_id,
            identifier=command.sn,
            name=name,
            model=model,
            additional=additional or {},
        )

    async def _refuse(self, command: Command, reason: str) -> None:
        command.status, command.finished_at = "FAILED", now()
        command.error = f"integration {command.carrier} refused: {reason}"[:LONGEST_ERROR]
        try:
            await self._writer.end(command, finished(command))
        except StoreError as error:
            log.warning("command %d is refused, and that is not stored: %s", command.id, error)
