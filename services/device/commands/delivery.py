"""Delivery of commands to devices, and repetition until they are answered.

One replica delivers (a lease); tenants take turns. A device may receive a command twice and
recognizes it by `commandId`.

An integration receives commands as they are or as downlinks. Downlinks are encoded once and
stored with the command, so that a repetition sends the same bytes. A request does not wait for
the integration: delivery repeats until the device answers or the command expires.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from libs.common.bus import Bus, OutgoingMessage
from libs.common.clock import to_ms
from libs.common.contracts.frames import Downlink
from libs.common.contracts.integrations import Acknowledged, DeviceCommand, DeviceRef
from libs.common.errors import InvalidInput, ThingwayError, TooManyRequests
from libs.common.integrations.client import (
    COMMAND_TIMEOUT_SECONDS,
    CommandTransport,
    IntegrationClient,
    Integrations,
)
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import StoreError
from services.device.commands.events import command_messages
from services.device.commands.model import (
    DEVICE_DELETED,
    DEVICE_REMOVED,
    MAX_ERROR_LENGTH,
    OPEN_STATES,
    VALUES_NOT_RESTORED,
    Command,
    DownlinkEncoder,
    downlink_id,
    utc_now,
)
from services.device.commands.schedule import DELIVERY_TOPIC
from services.device.commands.store import CommandStore
from services.device.things.codec_model import CodecFailed
from services.device.things.device_store import DeviceStore

log = logging.getLogger(__name__)

SENDING_WORKERS, MAX_WAITING_COMMANDS = 512, 10_000
"""Maximum commands that are handed to integrations at a time, and that wait per tenant."""
REJECTION_STATUSES = frozenset(range(400, 500)) - {TooManyRequests.status}
"""HTTP statuses by which an integration rejects a command."""


@dataclass(frozen=True)
class IntegrationCommandSender:
    """Hands commands to integrations; tenants take turns."""

    devices: DeviceStore
    integrations: Integrations
    client: IntegrationClient
    commands: CommandStore
    encoder: DownlinkEncoder
    _scheduler: FairScheduler = field(
        default_factory=lambda: FairScheduler(
            "command sending", SENDING_WORKERS, items=MAX_WAITING_COMMANDS
        ),
        init=False,
    )

    async def get_transport(self, integration: str) -> CommandTransport:
        """Return how an integration receives commands; "" if it receives none."""
        return await self.integrations.get_transport(integration)

    async def check_encoders(self, products: Iterable[tuple[str, str]]) -> None:
        """Raise `InvalidInput` for a product (tenant, model) whose codec cannot encode."""
        for product in products:
            try:
                await self.encoder.check_can_encode(*product)
            except CodecFailed as error:
                raise InvalidInput(f"the codec {error}", code="product_without_encoder") from error

    def send(
        self, commands: Iterable[Command], additional: Mapping[int, dict[str, Any]] | None = None
    ) -> None:
        """Start handing over those commands that an integration delivers.

        `additional` holds, by device id, the integration's data of devices that the caller has just
        read. Delivery repeats commands for which the queue has no room.
        """
        for command in commands:
            if command.carrier:
                known_data = (additional or {}).get(command.thing_id)
                with suppress(LaneFull):
                    send = partial(self._send_to_integration, command, command.carrier, known_data)
                    self._scheduler.start(command.tenant, send)

    async def _send_to_integration(
        self, command: Command, carrier: str, additional: dict[str, Any] | None
    ) -> None:
        try:
            device = await self._build_device_ref(command, additional)
            if command.coded:
                await self._send_downlinks(command, carrier, device)
                return
            request = DeviceCommand(device=device, command=command.to_wire())
            await self.client.call_operation(
                carrier, "command", request, Acknowledged, COMMAND_TIMEOUT_SECONDS
            )
        except CodecFailed as error:
            await self._fail(command, f"the codec {error}")
        except ThingwayError as error:
            if error.status in REJECTION_STATUSES:
                await self._fail(command, f"integration {carrier} refused: {error.text}")
            else:
                log.warning("command %d will be repeated: %s", command.id, command.mask(str(error)))
        except StoreError as error:
            log.warning("command %d will be repeated: %s", command.id, error)

    async def _send_downlinks(self, command: Command, carrier: str, device: DeviceRef) -> None:
        """Send the downlinks without a reported state.

        Raises `CodecFailed` and the errors of the integration.
        """
        if command.downlinks is None:
            made = await self.encoder.encode(command, device.model)
            command.downlinks = await self.commands.coded.store_downlinks(command, made)
        waiting = [
            Downlink(
                id=downlink_id(command.id, number),
                port=downlink.port,
                data=downlink.data,
                confirmed=True,
                expires_at=to_ms(command.expires_at),
            )
            for number, downlink in enumerate(command.downlinks, 1)
            if downlink.state is None
        ]
        if waiting:
            await self.client.queue_downlinks(carrier, device, waiting)

    async def _build_device_ref(
        self, command: Command, additional: dict[str, Any] | None
    ) -> DeviceRef:
        """Return the device in the form that integrations receive.

        A repetition has no `additional` data, so the device is read.
        """
        name, model = command.profile.name, command.profile.model
        if additional is None:
            device = await self.devices.find_by_id(command.thing_id)
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

    async def _fail(self, command: Command, reason: str) -> None:
        try:
            await self.commands.end(command, "FAILED", command.mask(reason)[:MAX_ERROR_LENGTH])
        except StoreError as failure:
            log.warning(
                "command %d was rejected, but this could not be stored: %s", command.id, failure
            )


CONCURRENT_TENANTS, COMMANDS_PER_READ = 4, 500
"""Tenants whose commands are delivered concurrently, and commands of a tenant read together."""
QUERY_INTERVAL_SECONDS = 0.3
"""Seconds between two queries for due commands."""


@dataclass(frozen=True, kw_only=True)
class DueCommandDelivery:
    """Sends due commands and ends expired ones."""

    devices: DeviceStore
    bus: Bus
    commands: CommandStore
    sender: IntegrationCommandSender

    async def run(self) -> None:
        """Run until cancelled."""
        list_due_tenants = self.commands.schedule.list_due_tenants
        await take_turns(
            "delivery",
            CONCURRENT_TENANTS,
            list_due_tenants,
            self.steps,
            QUERY_INTERVAL_SECONDS,
            wake=self.commands.wakeups.create_event(DELIVERY_TOPIC),
            upcoming=list_due_tenants,
        )

    async def steps(self, tenant: str) -> TenantSteps:
        """Process the due commands of a tenant, a batch at a time."""
        while await self.process_due(tenant) == COMMANDS_PER_READ:
            yield

    async def process_due(self, tenant: str) -> int:
        """Process up to `COMMANDS_PER_READ` due commands; return how many were due.

        Expired commands end as TIMEOUT. A command fails when its device has been deleted or has
        changed its application, or when its write-only values are missing after a restore. The
        remaining commands are sent, oldest first.
        """
        moment = utc_now()
        due = await self.commands.schedule.list_due(tenant, moment, COMMANDS_PER_READ)
        expired = [command for command in due if command.expires_at <= moment]
        for command in expired:
            await self.commands.end(command, "TIMEOUT", "the device did not answer in time")
        waiting = sorted(
            (command for command in due if command.expires_at > moment),
            key=lambda command: (command.created_at, command.id),
        )
        if not waiting:
            return len(due)
        devices = await self.devices.presence.find_owners_and_statuses(
            {command.thing_id for command in waiting}
        )
        for command in waiting:
            if command.thing_id not in devices:
                await self.commands.end(command, "FAILED", DEVICE_DELETED.text, DEVICE_DELETED.code)
            elif not command.has_all_values:
                await self.commands.end(
                    command, "FAILED", VALUES_NOT_RESTORED.text, VALUES_NOT_RESTORED.code
                )
            elif command.application_id not in {None, devices[command.thing_id].application_id}:
                await self.commands.end(command, "FAILED", DEVICE_REMOVED.text, DEVICE_REMOVED.code)
        waiting = [command for command in waiting if command.status in OPEN_STATES]
        await self.commands.publish_created(waiting)
        online = {
            thing_id for thing_id, device in devices.items() if device.connect_status == "ONLINE"
        }
        reachable, offline = list[Command](), list[Command]()
        for command in waiting:
            is_reachable = command.carrier or command.thing_id in online
            (reachable if is_reachable else offline).append(command)
        await self.commands.schedule.mark_sent(reachable, moment)
        await self.commands.schedule.suspend_deliveries(offline)
        self.sender.send(reachable)
        await self._publish_messages([command for command in reachable if not command.carrier])
        return len(due)

    async def _publish_messages(self, commands: Sequence[Command]) -> None:
        entries = [entry for command in commands for entry in command_messages(command)]
        await self.bus.publish(
            [
                OutgoingMessage(entry.subject, entry.payload, headers=entry.headers)
                for entry in entries
                if entry.stream
            ]
        )
        for entry in entries:
            if not entry.stream:
                await self.bus.publish_core(entry.subject, entry.payload, entry.headers)
