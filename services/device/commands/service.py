"""Use cases of commands: property updates, service calls, configuration and tasks."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from libs.common.bus.hops import current_hops
from libs.common.clock import to_ms
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.identity import PrincipalKind as CallerKind
from libs.common.integrations.client import CommandTransport
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from libs.common.things import DIRECT_INTEGRATION
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.delivery import IntegrationCommandSender
from services.device.commands.drafts import (
    REQUIRED_FIELD_BY_TYPE,
    add_device_to_error,
    check_layout,
    check_total_size,
    draft_command,
    draft_config,
    draft_properties,
    has_struct,
    parse_device_ids,
)
from services.device.commands.events import error_code, new_command_entries, subcommands
from services.device.commands.model import (
    Command,
    CommandDraft,
    Config,
    CreateTasks,
    DeviceTask,
    Task,
    utc_now,
)
from services.device.commands.store import CommandStore, CommandsWithEvents
from services.device.telemetry.latest_values import LatestValues
from services.device.things.directory import ThingDirectory
from services.device.things.errors import device_not_found
from services.device.things.model import Device, Thing

DEVICES_PER_BATCH = 100
"""Devices whose records and values are in memory at the same time."""


@dataclass(frozen=True, kw_only=True)
class CommandService:
    """Checks requested changes against the TSL and issues them as commands."""

    things: ThingDirectory
    store: CommandStore
    latest: LatestValues
    ids: IdAllocator
    sender: IntegrationCommandSender
    lifetime_seconds: float
    """Seconds after which an unanswered command expires, unless it is delivered as downlinks."""
    coded_lifetime_seconds: float
    """Seconds after which an unanswered command that is delivered as downlinks expires."""

    async def update_properties(
        self, principal: Principal, device_id: int, properties: dict[str, Any]
    ) -> Command:
        """Issue a property update to a device; one invalid value rejects the update."""
        return await self.update_thing_properties(
            principal, await self.things.get_thing(principal, device_id), properties
        )

    async def update_thing_properties(
        self, principal: Principal, thing: Thing, properties: dict[str, Any]
    ) -> Command:
        """Issue a property update to a device that the caller may see."""
        (draft,) = await self.draft_property_updates([(thing, properties)])
        if isinstance(draft, InvalidInput):
            raise draft
        (command,) = await self.issue(principal, [draft])
        return command

    async def call_service(
        self, principal: Principal, device_id: int, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Issue a call of a service in the device's TSL."""
        thing = await self.things.get_thing(principal, device_id)
        return await self.call_thing_service(principal, thing, service_id, inputs)

    async def call_thing_service(
        self, principal: Principal, thing: Thing, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Issue a service call to a device that the caller may see."""
        draft = self.draft_service_call(thing, service_id, inputs)
        (command,) = await self.issue(principal, [draft])
        return command

    async def draft_property_updates(
        self, updates: Sequence[tuple[Thing, dict[str, Any]]]
    ) -> list[CommandDraft | InvalidInput]:
        """Return a draft for each property update, or the error that rejects it.

        Faults have paths such as `properties.interval`. Current values are read only for devices
        whose update contains a STRUCT, because a STRUCT may be partial. Raises `TooLarge`.
        """
        checked: list[CommandDraft | InvalidInput] = []
        for start in range(0, len(updates), DEVICES_PER_BATCH):
            batch = updates[start : start + DEVICES_PER_BATCH]
            partial = [thing for thing, properties in batch if has_struct(properties)]
            current = await self._find_values_with_pending(partial) if partial else {}
            for thing, properties in batch:
                current_values = current.get(thing.id, {})
                try:
                    checked.append(
                        draft_properties(thing, properties, "properties", current_values)
                    )
                except InvalidInput as error:
                    checked.append(error)
            check_total_size(draft for draft in checked if isinstance(draft, CommandDraft))
        return checked

    def draft_service_call(
        self, thing: Thing, service_id: str, inputs: dict[str, Any] | None
    ) -> CommandDraft:
        """Return the draft of a service call; faults are at `serviceId` and `inputs.…`."""
        try:
            checked = thing.tsl.check_service_inputs(service_id, inputs)
        except (InvalidValues, UnknownService) as error:
            raise InvalidInput.from_faults(error.faults) from error
        return draft_command(thing, "CALL_SERVICE", {"serviceId": service_id, "inputs": checked})

    async def create_tasks(self, principal: Principal, request: CreateTasks) -> list[DeviceTask]:
        """Configure several devices; one invalid configuration rejects the request."""
        ids = parse_device_ids(request.device_ids)
        check_layout(request.type, request.config)
        drafts: list[CommandDraft] = []
        for start in range(0, len(ids), DEVICES_PER_BATCH):
            drafts += await self._draft_configs(
                principal, ids[start : start + DEVICES_PER_BATCH], request
            )
            check_total_size(drafts)
        commands = await self.issue(principal, drafts)
        return [DeviceTask(command.thing_id, command.id) for command in commands]

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        """Raise `InvalidInput` when a new device's TSL rejects its first configuration."""
        await self._draft_first_config(device, config)

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        """Issue the first configuration of a device that has just been added."""
        application = str(device.application_id)
        principal = Principal(CallerKind.APPLICATION, device.tenant, application)
        await self.issue(principal, [await self._draft_first_config(device, config)])

    async def delete_profile(self, thing_id: int) -> None:
        """Delete the profile of a device whose owner changes."""
        await self.store.delete_profile(thing_id)

    async def _draft_first_config(self, device: Device, config: dict[str, Any]) -> CommandDraft:
        """Return the draft of a first configuration; without `type`, its fields decide the type."""
        try:
            wire = msgspec.convert(config, Config)
        except msgspec.ValidationError as error:
            raise InvalidInput(str(error).replace("`", "'"), field="config") from error
        thing = await self.things.build_thing(device)
        kind_name = (wire.type or "").upper()
        kind = (
            kind_name
            if kind_name in REQUIRED_FIELD_BY_TYPE
            else "TSL"
            if wire.values is None
            else "PROFILE"
        )
        check_layout(kind, wire)
        return draft_config(
            thing, kind, wire, (await self._find_values_with_pending([thing]))[thing.id]
        )

    async def get_config(self, principal: Principal, device_id: int) -> Config:
        """Return the configuration of a device in the shape that a task accepts.

        Settings of open commands override confirmed and reported values.
        """
        thing = await self.things.get_thing(principal, device_id)
        if thing.device_type == "GATEWAY":
            values = await self.store.find_profile(thing.id)
            pending = await self.store.find_pending_settings([thing.id], "SET_PROFILE")
            values.update(pending.get(thing.id, {}))
            visible_values = thing.tsl.readable(values)
            listed = [{"key": key, "value": value} for key, value in visible_values.items()]
            return Config(version=thing.tsl_version, values=listed)  # type: ignore[arg-type]
        current = await self._find_values_with_pending([thing])
        properties = thing.tsl.writable(current[thing.id])
        return Config(version=thing.tsl_version, type="TSL", properties=properties)

    async def get_task(self, principal: Principal, task_id: int) -> Task:
        """Return a task of the calling application; raise `NotFound`."""
        command = await self.store.find_task(task_id, principal.tenant, principal.application_id)
        if command is None:
            raise NotFound(f"task {task_id} does not exist", field="taskId", code="task_not_found")
        with suppress(NotFound):  # the device may have been deleted
            thing = await self.things.get_thing(principal, command.thing_id)
            command = command.conceal_values(thing.tsl)
        return task_from_command(command)

    async def _draft_configs(
        self, principal: Principal, ids: Sequence[int], request: CreateTasks
    ) -> list[CommandDraft]:
        """Return drafts of a configuration; an error names the device that rejects it."""
        things = await self.things.find_all_visible(principal, ids)
        current = await self._find_values_with_pending(things.values())
        drafts = []
        for device_id in ids:
            if device_id not in things:
                raise device_not_found(device_id)
            try:
                draft = draft_config(
                    things[device_id], request.type, request.config, current[device_id]
                )
            except InvalidInput as error:
                raise add_device_to_error(device_id, error) from error
            drafts.append(draft)
        return drafts

    async def _find_values_with_pending(
        self, things: Collection[Thing], session: Session | None = None
    ) -> dict[int, dict[str, Any]]:
        """Return the readable latest values of each thing, overridden by its open commands.

        Open commands are read first: a command that closes in between has already updated the
        latest values.
        """
        ids = [thing.id for thing in things]
        pending = await self.store.find_pending_settings(ids, "SET_PROPERTIES", session)
        latest = await self.latest.find_values(ids, session)
        return {
            thing.id: thing.tsl.readable({**latest.get(thing.id, {}), **pending.get(thing.id, {})})
            for thing in things
        }

    async def issue(
        self, principal: Principal, drafts: Sequence[CommandDraft]
    ) -> Sequence[Command]:
        """Store the commands of drafts in the caller's name, all or none, and start sending them.

        Partial STRUCTs are completed again inside the transaction, so that concurrent updates of
        one device build on each other. Raises `TooLarge`, `InvalidInput` for a codec that cannot
        encode, and `Conflict` for an application whose device receives no commands.
        """
        integrations = {draft.thing.integration for draft in drafts}
        transports = {name: await self.sender.get_transport(name) for name in integrations}
        if principal.kind is CallerKind.APPLICATION:
            _check_deliverable(transports)
        coded = [draft.thing for draft in drafts if transports[draft.thing.integration] == "frames"]
        await self.sender.check_encoders({(thing.tenant, thing.model) for thing in coded})

        ids = [await self.ids.allocate() for _ in drafts]
        partial = [draft.thing.id for draft in drafts if draft.given is not None]
        if partial:

            async def make(session: Session) -> CommandsWithEvents:
                whole = await self._complete_structs(drafts, session)
                return self._build_commands(principal, whole, ids, transports)

            commands = await self.store.insert_with_locked_things(partial, make)
        else:
            commands = await self.store.insert_and_publish(
                self._build_commands(principal, drafts, ids, transports)
            )
        additional = {draft.thing.id: draft.thing.additional or {} for draft in drafts}
        self.sender.send(commands, additional)
        return commands

    async def _complete_structs(
        self, drafts: Sequence[CommandDraft], session: Session
    ) -> list[CommandDraft]:
        whole: list[CommandDraft] = []
        for start in range(0, len(drafts), DEVICES_PER_BATCH):
            batch = drafts[start : start + DEVICES_PER_BATCH]
            partial = [draft.thing for draft in batch if draft.given is not None]
            current = await self._find_values_with_pending(partial, session) if partial else {}
            whole += [
                draft
                if draft.given is None
                else draft_properties(
                    draft.thing, draft.given, "properties", current[draft.thing.id]
                )
                for draft in batch
            ]
        return whole

    def _build_commands(
        self,
        principal: Principal,
        drafts: Sequence[CommandDraft],
        ids: Sequence[int],
        transports: Mapping[str, CommandTransport],
    ) -> CommandsWithEvents:
        check_total_size(drafts)
        moment, is_application = utc_now(), principal.kind is CallerKind.APPLICATION

        def build_command(
            draft: CommandDraft, command_id: int, transport: CommandTransport
        ) -> Command:
            coded = transport == "frames"
            lifetime = self.coded_lifetime_seconds if coded else self.lifetime_seconds
            return Command(
                id=command_id,
                thing_id=draft.thing.id,
                sn=draft.thing.sn,
                tenant=draft.thing.tenant,
                application_id=principal.application_id if is_application else None,
                user_id=None if is_application else principal.user_id,
                hops=current_hops(),
                kind=draft.kind,
                payload=draft.payload,
                full_payload=draft.full_payload,
                write_only=list(draft.write_only),
                profile=draft.thing.profile,
                created_at=moment,
                expires_at=moment + timedelta(seconds=lifetime),
                status="SENT" if draft.thing.online and not coded else "PENDING",
                carrier=draft.thing.integration if transport else None,
                coded=coded,
                provisions=draft.thing.needs_configuration,
            )

        commands = [
            build_command(draft, command_id, transports[draft.thing.integration])
            for draft, command_id in zip(drafts, ids, strict=True)
        ]
        return commands, [
            entry
            for command, draft in zip(commands, drafts, strict=True)
            for entry in new_command_entries(command, draft.encoded)
        ]


def _check_deliverable(transports: Mapping[str, CommandTransport]) -> None:
    """Raise `Conflict` for an integration that does not accept commands."""
    for integration, transport in transports.items():
        if integration != DIRECT_INTEGRATION and not transport:
            text = f"the integration {integration} does not accept commands"
            raise Conflict(text, field="deviceId", code="device_of_integration")


def task_from_command(command: Command) -> Task:
    """Return the task of a command, as its application sees it."""
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
