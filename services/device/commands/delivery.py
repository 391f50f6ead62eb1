"""Delivery of commands: carries them to devices, and sends them again until they are answered.

Runs in one replica (a lease), where tenants take turns. What it sends may arrive twice; devices
tell by `commandId`.

Hands commands to integrations that carry them to their devices, as they are or as bytes.

Bytes are made once and kept with the command, so that it is the same ones that are handed over
again.

It is done beside the request: a command that an integration did not take is handed over again
by the delivery, until its device answers or its time is over.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from libs.common.bus import Bus, Outgoing
from libs.common.clock import to_ms
from libs.common.contracts.frames import Downlink
from libs.common.contracts.integrations import Acknowledged, DeviceCommand, DeviceRef
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.integrations.client import CARRY_SECONDS, Carries, IntegrationClient, Integrations
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import StoreError
from services.device.commands.events import to_device
from services.device.commands.model import (
    DELETED,
    NOT_RESTORED,
    OPEN,
    REMOVED,
    Command,
    DownlinkEncoder,
    downlink_id,
    now,
)
from services.device.commands.store import CommandStore
from services.device.things.codec_model import CodecFailed
from services.device.things.device_store import DeviceStore

log = logging.getLogger(__name__)

LONGEST_ERROR = 1000
CARRYING_WORKERS, WAITING = 512, 10_000
"""Commands that are handed over at a time, and those of a tenant that wait in memory."""
REFUSALS = range(400, 500)
"""Statuses by which an integration says that it will not carry a command."""


@dataclass(frozen=True)
class CommandCarrier:
    """Hands commands over; tenants take turns."""

    devices: DeviceStore
    integrations: Integrations
    client: IntegrationClient
    commands: CommandStore
    encoder: DownlinkEncoder
    _scheduler: FairScheduler = field(
        default_factory=lambda: FairScheduler("carrying", CARRYING_WORKERS, items=WAITING),
        init=False,
    )

    async def carries(self, integration: str) -> Carries:
        """What of commands goes to the integration instead of to the device."""
        return await self.integrations.carries(integration)

    async def check_encoders(self, products: Iterable[tuple[str, str]]) -> None:
        """Raise `InvalidInput` for a product (tenant and model) whose codec encodes nothing."""
        for product in products:
            try:
                await self.encoder.check(*product)
            except CodecFailed as error:
                raise InvalidInput(f"the codec {error}", code="product_without_encoder") from error

    def send(
        self, commands: Iterable[Command], additional: Mapping[int, dict[str, Any]] | None = None
    ) -> None:
        """Hand over those that are carried, without waiting.

        The delivery sends again those that have no room, as it does all that get no answer.

        `additional` is what integrations keep with devices, by id, of devices that have just
        been read.
        """
        for command in commands:
            if command.carrier:
                known = (additional or {}).get(command.thing_id)
                with suppress(LaneFull):
                    carry = partial(self._carry, command, command.carrier, known)
                    self._scheduler.start(command.tenant, carry)

    async def _carry(
        self, command: Command, carrier: str, additional: dict[str, Any] | None
    ) -> None:
        try:
            device = await self._ref(command, additional)
            if command.coded:
                await self._carry_downlinks(command, carrier, device)
                return
            wanted = DeviceCommand(device=device, command=command.wire())
            await self.client.ask(carrier, "command", wanted, Acknowledged, CARRY_SECONDS)
        except CodecFailed as error:
            await self._refuse(command, f"the codec {error}")
        except ThingwayError as error:
            if error.status in REFUSALS:
                await self._refuse(command, f"integration {carrier} refused: {error.text}")
            else:
                log.warning("command %d waits: %s", command.id, command.masked(str(error)))
        except StoreError as error:
            log.warning("command %d waits: %s", command.id, error)

    async def _carry_downlinks(self, command: Command, carrier: str, device: DeviceRef) -> None:
        """Let an integration queue what nothing was told of yet.

        Raises `CodecFailed` with what keeps the codec from it, and what the integration says.
        """
        if command.downlinks is None:
            made = await self.encoder.encode(command, device.model)
            command.downlinks = await self.commands.coded.keep_downlinks(command, made)
        waiting = [
            Downlink(
                id=downlink_id(command.id, number),
                port=one.port,
                data=one.data,
                confirmed=True,
                expires_at=to_ms(command.expires_at),
            )
            for number, one in enumerate(command.downlinks, 1)
            if one.state is None
        ]
        if waiting:
            await self.client.carry(carrier, device, waiting)

    async def _ref(self, command: Command, additional: dict[str, Any] | None) -> DeviceRef:
        """The device as its integration knows it; read anew when the command comes again."""
        name, model = command.profile.name, command.profile.model
        if additional is None:
            device = await self.devices.with_id(command.thing_id)
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
        try:
            await self.commands.end(command, "FAILED", command.masked(reason)[:LONGEST_ERROR])
        except StoreError as failure:
            log.warning("command %d is refused, and that is not stored: %s", command.id, failure)


WORKERS, CHUNK = 4, 500
"""Tenants that have a turn at a time, and commands of one."""
PERIOD = 0.3
"""Seconds between looks at what is due."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Sends due commands, and ends those whose time is over."""

    devices: DeviceStore
    bus: Bus
    commands: CommandStore
    carrier: CommandCarrier

    async def run(self) -> None:
        """Work for ever."""
        await take_turns("delivery", WORKERS, self.commands.tenants_due, self.steps, PERIOD)

    async def steps(self, tenant: str) -> Steps:
        """Deal with the commands of a tenant until none is due."""
        while await self.deliver(tenant) == CHUNK:
            yield

    async def deliver(self, tenant: str) -> int:
        """Deal with commands that are due now, those due first at first; return their number.

        Those that their device will not answer any more end.
        """
        moment = now()
        due = await self.commands.due(tenant, moment, CHUNK)
        expired = [command for command in due if command.expires_at <= moment]
        for command in expired:
            await self.commands.end(command, "TIMEOUT", "the device did not answer in time")
        waiting = sorted(
            (command for command in due if command.expires_at > moment),
            key=lambda command: (command.created_at, command.id),
        )
        if not waiting:
            return len(due)
        devices = await self.devices.presence.standing({command.thing_id for command in waiting})
        for command in waiting:
            if command.thing_id not in devices:
                await self.commands.end(command, "FAILED", DELETED.text, DELETED.code)
            elif not command.is_deliverable:
                await self.commands.end(command, "FAILED", NOT_RESTORED.text, NOT_RESTORED.code)
            elif command.application_id not in {None, devices[command.thing_id].application_id}:
                await self.commands.end(command, "FAILED", REMOVED.text, REMOVED.code)
        waiting = [command for command in waiting if command.status in OPEN]
        online = {one for one, device in devices.items() if device.connect_status == "ONLINE"}
        here = [one for one in waiting if one.carrier or one.thing_id in online]
        away = [one for one in waiting if not one.carrier and one.thing_id not in online]
        await self.commands.sent(here, moment)
        await self.commands.rest(away)
        self.carrier.send(here)
        await self._send([one for one in here if not one.carrier])
        return len(due)

    async def _send(self, commands: Sequence[Command]) -> None:
        entries = [entry for command in commands for entry in to_device(command)]
        await self.bus.publish(
            [
                Outgoing(entry.subject, entry.payload, headers=entry.headers)
                for entry in entries
                if entry.stream
            ]
        )
        for entry in entries:
            if not entry.stream:
                await self.bus.publish_core(entry.subject, entry.payload, entry.headers)
