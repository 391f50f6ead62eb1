"""Property updates, service calls, configuration and tasks: what an application asks for."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from libs.common.bus.hops import current_hops
from libs.common.clock import to_ms
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Kind as CallerKind
from libs.common.identity import Principal
from libs.common.integrations.client import Carries
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from libs.common.things import DIRECT
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.delivery import CommandCarrier
from services.device.commands.drafts import (
    LAYOUTS,
    check_layout,
    check_size,
    draft_command,
    draft_config,
    draft_properties,
    error_of_device,
    is_partial,
    read_device_ids,
)
from services.device.commands.events import created, error_code, subcommands
from services.device.commands.model import (
    Command,
    Config,
    CreateTasks,
    DeviceTask,
    Draft,
    Task,
    now,
)
from services.device.commands.store import CommandStore, Made
from services.device.telemetry.latest_values import LatestValues
from services.device.things.directory import ThingDirectory
from services.device.things.errors import device_not_found
from services.device.things.model import Device, Thing

READ_AT_ONCE = 100
"""Devices whose record and values are held in memory at the same time."""


@dataclass(frozen=True, kw_only=True)
class CommandService:
    """Checks what is asked against the TSL, and writes it down as commands."""

    things: ThingDirectory
    store: CommandStore
    latest: LatestValues
    ids: IdAllocator
    carrier: CommandCarrier
    life: float
    coded_life: float

    async def update_properties(
        self, principal: Principal, device_id: int, properties: dict[str, Any]
    ) -> Command:
        """Ask a device to take on `properties`; a single bad one refuses them all."""
        return await self.update_thing(
            principal, await self.things.visible(principal, device_id), properties
        )

    async def update_thing(
        self, principal: Principal, thing: Thing, properties: dict[str, Any]
    ) -> Command:
        """Ask a device that the caller sees to take on `properties`, all of them or none."""
        (draft,) = await self.check_properties([(thing, properties)])
        if isinstance(draft, InvalidInput):
            raise draft
        (command,) = await self.issue(principal, [draft])
        return command

    async def call_service(
        self, principal: Principal, device_id: int, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Ask a device to run a service of its TSL."""
        thing = await self.things.visible(principal, device_id)
        draft = self.check_call(thing, service_id, inputs)
        (command,) = await self.issue(principal, [draft])
        return command

    async def check_properties(
        self, updates: Sequence[tuple[Thing, dict[str, Any]]]
    ) -> list[Draft | InvalidInput]:
        """Check what devices are to take on; return why not (faults at `properties.…`) or a draft.

        What they have is read together, and only of those whose STRUCTs are given in part.
        Raises `TooLarge` for what the bus cannot carry.
        """
        checked: list[Draft | InvalidInput] = []
        for start in range(0, len(updates), READ_AT_ONCE):
            some = updates[start : start + READ_AT_ONCE]
            partial = [thing for thing, properties in some if is_partial(properties)]
            current = await self._current(partial) if partial else {}
            for thing, properties in some:
                known = current.get(thing.id, {})
                try:
                    checked.append(draft_properties(thing, properties, "properties", known))
                except InvalidInput as error:
                    checked.append(error)
            check_size(one for one in checked if isinstance(one, Draft))
        return checked

    def check_call(self, thing: Thing, service_id: str, inputs: dict[str, Any] | None) -> Draft:
        """Check a call of a service of a device (faults at `serviceId` and `inputs.…`)."""
        try:
            checked = thing.tsl.check_service_inputs(service_id, inputs)
        except (InvalidValues, UnknownService) as error:
            raise InvalidInput.of_faults(error.faults) from error
        return draft_command(thing, "CALL_SERVICE", {"serviceId": service_id, "inputs": checked})

    async def create_tasks(self, principal: Principal, request: CreateTasks) -> list[DeviceTask]:
        """Configure many devices; nothing is sent unless everything is right for all."""
        ids = read_device_ids(request.device_ids)
        check_layout(request.type, request.config)
        drafts: list[Draft] = []
        for start in range(0, len(ids), READ_AT_ONCE):
            drafts += await self._drafts(principal, ids[start : start + READ_AT_ONCE], request)
            check_size(drafts)
        commands = await self.issue(principal, drafts)
        return [DeviceTask(command.thing_id, command.id) for command in commands]

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        """Raise `InvalidInput` when a new device's TSL does not accept its first configuration."""
        await self._draft_first(device, config)

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        """Send a device that has just been added its first configuration, as a task."""
        application = str(device.application_id)
        principal = Principal(CallerKind.APPLICATION, device.tenant, application)
        await self.issue(principal, [await self._draft_first(device, config)])

    async def forget(self, thing_id: int) -> None:
        """Forget what a device that gets another owner has been configured to."""
        await self.store.forget(thing_id)

    async def _draft_first(self, device: Device, config: dict[str, Any]) -> Draft:
        """Check a configuration whose own `type` says what it is."""
        try:
            wire = msgspec.convert(config, Config)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error).replace("`", "'"), field="config") from error
        thing = await self.things.thing(device)
        named = (wire.type or "").upper()
        kind = named if named in LAYOUTS else "TSL" if wire.values is None else "PROFILE"
        check_layout(kind, wire)
        return draft_config(thing, kind, wire, (await self._current([thing]))[thing.id])

    async def config(self, principal: Principal, device_id: int) -> Config:
        """What the device is configured to, in the shape that a task takes.

        What it has confirmed or reported, with what it is still to take on laid over it.
        """
        thing = await self.things.visible(principal, device_id)
        if thing.device_type == "GATEWAY":
            values = await self.store.profile(thing.id)
            pending = await self.store.pending([thing.id], "SET_PROFILE")
            values.update(pending.get(thing.id, {}))
            shown = thing.tsl.readable(values)
            listed = [{"key": key, "value": value} for key, value in shown.items()]
            return Config(version=thing.tsl_version, values=listed)  # type: ignore[arg-type]
        current = await self._current([thing])
        properties = thing.tsl.writable(current[thing.id])
        return Config(version=thing.tsl_version, type="TSL", properties=properties)

    async def task(self, principal: Principal, task_id: int) -> Task:
        """The state of a task of the caller."""
        command = await self.store.find_task(task_id, principal.tenant, principal.application_id)
        if command is None:
            raise NotFound(f"there is no task {task_id}", field="taskId", code="task_not_found")
        with suppress(NotFound):  # of a device that is gone nothing is known
            thing = await self.things.visible(principal, command.thing_id)
            command = command.readable_by(thing.tsl)
        return describe(command)

    async def _drafts(
        self, principal: Principal, ids: Sequence[int], request: CreateTasks
    ) -> list[Draft]:
        """Check the configuration for some devices; the first that refuses it is named."""
        things = await self.things.all_visible(principal, ids)
        current = await self._current(things.values())
        drafts = []
        for one in ids:
            if one not in things:
                raise device_not_found(one)
            try:
                draft = draft_config(things[one], request.type, request.config, current[one])
            except InvalidInput as error:
                raise error_of_device(one, error) from error
            drafts.append(draft)
        return drafts

    async def _current(
        self, things: Collection[Thing], session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """What can be read of each thing, with what it is still to take on laid over it.

        In this order: what is pending no more has become a latest value before.
        """
        ids = [thing.id for thing in things]
        pending = await self.store.pending(ids, "SET_PROPERTIES", session)
        latest = await self.latest.of(ids, session)
        return {
            thing.id: thing.tsl.readable({**latest.get(thing.id, {}), **pending.get(thing.id, {})})
            for thing in things
        }

    async def issue(self, principal: Principal, drafts: Sequence[Draft]) -> Sequence[Command]:
        """Write and send what was checked, all of it or nothing; the caller is its author.

        STRUCTs given in part are completed anew when nobody else can write to their things:
        of several updates at once, each builds on the one before.
        """
        integrations = {draft.thing.integration for draft in drafts}
        carriers = {one: await self.carrier.carries(one) for one in integrations}
        if principal.kind is CallerKind.APPLICATION:
            _check_taken(carriers)
        coded = [one.thing for one in drafts if carriers[one.thing.integration] == "frames"]
        await self.carrier.check_encoders({(thing.tenant, thing.model) for thing in coded})

        ids = [await self.ids.take() for _ in drafts]
        partial = [draft.thing.id for draft in drafts if draft.given is not None]
        if partial:

            async def make(session: Session) -> Made:
                whole = await self._completed(drafts, session)
                return self._made(principal, whole, ids, carriers)

            commands = await self.store.write_in_turn(partial, make)
        else:
            commands = await self.store.write(self._made(principal, drafts, ids, carriers))
        known = {draft.thing.id: draft.thing.additional or {} for draft in drafts}
        self.carrier.send(commands, known)
        return commands

    async def _completed(self, drafts: Sequence[Draft], session: Session) -> list[Draft]:
        whole: list[Draft] = []
        for start in range(0, len(drafts), READ_AT_ONCE):
            some = drafts[start : start + READ_AT_ONCE]
            partial = [draft.thing for draft in some if draft.given is not None]
            current = await self._current(partial, session) if partial else {}
            whole += [
                draft
                if draft.given is None
                else draft_properties(
                    draft.thing, draft.given, "properties", current[draft.thing.id]
                )
                for draft in some
            ]
        return whole

    def _made(
        self,
        principal: Principal,
        drafts: Sequence[Draft],
        ids: Sequence[int],
        carriers: Mapping[str, Carries],
    ) -> Made:
        """Return commands of drafts and what they say; raise `TooLarge`."""
        check_size(drafts)
        moment, applies = now(), principal.kind is CallerKind.APPLICATION

        def command_of(draft: Draft, command_id: int, carries: Carries) -> Command:
            coded = carries == "frames"
            return Command(
                id=command_id,
                thing_id=draft.thing.id,
                sn=draft.thing.sn,
                tenant=draft.thing.tenant,
                application_id=principal.application_id if applies else None,
                user_id=None if applies else principal.user_id,
                hops=current_hops(),
                kind=draft.kind,
                payload=draft.payload,
                sealed=draft.sealed,
                write_only=list(draft.write_only),
                profile=draft.thing.profile,
                created_at=moment,
                expires_at=moment + timedelta(seconds=self.coded_life if coded else self.life),
                status="SENT" if draft.thing.online and not coded else "PENDING",
                carrier=draft.thing.integration if carries else None,
                coded=coded,
            )

        commands = [
            command_of(draft, command_id, carriers[draft.thing.integration])
            for draft, command_id in zip(drafts, ids, strict=True)
        ]
        return commands, [
            entry
            for command, draft in zip(commands, drafts, strict=True)
            for entry in created(command, draft.encoded)
        ]


def _check_taken(carriers: Mapping[str, Carries]) -> None:
    """Raise `Conflict` for an integration whose devices, which users gave, take no commands."""
    for integration, carries in carriers.items():
        if integration != DIRECT and not carries:
            text = f"the integration {integration} takes no commands for its devices"
            raise Conflict(text, field="deviceId", code="device_of_integration")


def describe(command: Command) -> Task:
    """The task that a command is to its application."""
    return Task(
        task_id=command.id,
        device_id=command.thing_id,
        type=command.type,
        kind=command.kind,
        status=command.status,
        created_at=to_ms(command.created_at),
        expires_at=to_ms(command.expires_at),
        err_code=error_code(command),
        err_msg=command.error,
        finished_at=to_ms(command.finished_at) if command.finished_at else None,
        service_id=command.service_id or None,
        outputs=command.outputs,
        subcommand=subcommands(command),
    )
