"""Property updates, service calls, configuration and tasks: what an application asks for."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from libs.common.bus import OutboxEntry
from libs.common.errors import InvalidInput, NotFound, TooLarge
from libs.common.identity import Principal
from libs.common.tsl import Fault, InvalidValues, UnknownService
from libs.common.tsl.limits import unstorable
from services.device.commands.messages import ERROR_CODES, created, subcommands
from services.device.commands.model import Command, Draft, Kind, now
from services.device.commands.schemas import Config, CreateTasks, DeviceTask, Task
from services.device.things import Thing

MOST_DEVICES = 1000
"""Devices of one `POST /tasks`."""
LARGEST_COMMAND = 256 * 1024
"""Bytes of one command, which is one message of the bus."""
LARGEST_REQUEST = 8 * 1024**2
"""Bytes of all commands of one request, which is one transaction."""


class Commands(Protocol):
    """What the service needs of the store."""

    async def get(self, command_id: int, tenant: str, application_id: int) -> Command | None:
        """A command of one application."""

    async def open_of(self, thing_id: int) -> list[Command]:
        """Unanswered commands, oldest first."""

    async def profile(self, thing_id: int) -> dict[str, Any]:
        """Confirmed profile values."""


class Latest(Protocol):
    """Latest values."""

    async def of(self, thing_id: int) -> dict[str, Any]:
        """The latest value of each property."""


class Lookup(Protocol):
    """Things on behalf of a caller."""

    async def of(self, principal: Principal, device_id: int) -> Thing:
        """The thing, or `NotFound`."""


class Ids(Protocol):
    """The id allocator."""

    async def take(self) -> int:
        """A new id."""


class Writer(Protocol):
    """Writes commands and what they say in one transaction, then says it."""

    async def write(self, commands: Sequence[Command], entries: Sequence[OutboxEntry]) -> None:
        """Write and relay."""


class CommandService:
    """Checks what is asked against the TSL, and writes it down as commands."""

    def __init__(
        self,
        *,
        things: Lookup,
        commands: Commands,
        latest: Latest,
        ids: Ids,
        writer: Writer,
        life: float,
    ) -> None:
        self._things = things
        self._commands = commands
        self._latest = latest
        self._ids = ids
        self._writer = writer
        self._life = timedelta(seconds=life)

    async def update_properties(
        self, principal: Principal, device_id: int, properties: dict[str, Any]
    ) -> Command:
        """Ask a device to take on `properties`; a single bad one refuses them all."""
        thing = await self._things.of(principal, device_id)
        draft = await self._draft_properties(thing, properties, "properties")
        (command,) = await self._issue(principal, [draft])
        return command

    async def call_service(
        self, principal: Principal, device_id: int, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Ask a device to run a service of its TSL."""
        thing = await self._things.of(principal, device_id)
        try:
            checked = thing.tsl.check_service_inputs(service_id, inputs)
        except (InvalidValues, UnknownService) as error:
            raise InvalidInput.of_faults(error.faults) from error
        payload = {"serviceId": service_id, "inputs": checked}
        (command,) = await self._issue(principal, [_draft(thing, "CALL_SERVICE", payload)])
        return command

    async def create_tasks(self, principal: Principal, request: CreateTasks) -> list[DeviceTask]:
        """Configure many devices; nothing is sent unless everything is right for all."""
        ids = read_device_ids(request.device_ids)
        drafts = [
            await self._draft_config(
                await self._things.of(principal, device_id), request.type, request.config
            )
            for device_id in ids
        ]
        commands = await self._issue(principal, drafts)
        return [DeviceTask(command.thing_id, command.id) for command in commands]

    async def check_config(self, thing: Thing, config: Config) -> Draft:
        """Check a configuration whose own `type` says what it is (auto-provision)."""
        kind = config.type or ("PROFILE" if config.values is not None else "TSL")
        return await self._draft_config(thing, kind, config)

    async def provision(self, principal: Principal, draft: Draft) -> None:
        """Send a checked configuration to a device that was just added."""
        await self._issue(principal, [draft])

    async def config(self, principal: Principal, device_id: int) -> Config:
        """What the device is configured to, in the shape that a task takes.

        What it has confirmed or reported, with what it is still to take on laid over it.
        """
        thing = await self._things.of(principal, device_id)
        if thing.device_type == "GATEWAY":
            values = await self._commands.profile(thing.id)
            for command in await self._commands.open_of(thing.id):
                if command.kind == "SET_PROFILE":
                    values.update(command.settings())
            listed = [{"key": key, "value": value} for key, value in values.items()]
            return Config(version=thing.tsl_version, values=listed)  # type: ignore[arg-type]
        current = await self._current(thing)
        writable = thing.tsl.writable_keys
        properties = {key: value for key, value in current.items() if key in writable}
        return Config(version=thing.tsl_version, type="TSL", properties=properties)

    async def task(self, principal: Principal, task_id: int) -> Task:
        """The state of a task of the caller."""
        command = await self._commands.get(task_id, principal.tenant, principal.application_id)
        if command is None:
            raise NotFound(f"there is no task {task_id}", field="taskId", code="task_not_found")
        return describe(command)

    async def _draft_config(self, thing: Thing, kind: str, config: Config) -> Draft:
        match kind.upper():
            case "TSL":
                if not config.properties:
                    raise InvalidInput("must not be empty", field="config.properties")
                return await self._draft_properties(thing, config.properties, "config.properties")
            case "PROFILE":
                if not config.values:
                    raise InvalidInput("must not be empty", field="config.values")
                values = [{"key": entry.key, "value": entry.value} for entry in config.values]
                faults = [
                    Fault(f"config.values[{index}]", reason)
                    for index, entry in enumerate(values)
                    if (reason := unstorable(entry))
                ]
                if faults:
                    raise InvalidInput.of_faults(faults)
                return _draft(thing, "SET_PROFILE", {"values": values})
        raise InvalidInput("must be PROFILE or TSL", field="type")

    async def _draft_properties(
        self, thing: Thing, properties: dict[str, Any], field: str
    ) -> Draft:
        try:
            whole = thing.tsl.check_write(properties, await self._current(thing))
        except InvalidValues as error:
            prefix = field.removesuffix("properties")
            faults = [type(one)(prefix + one.path, one.reason) for one in error.faults]
            raise InvalidInput.of_faults(faults) from error
        return _draft(thing, "SET_PROPERTIES", {"properties": whole})

    async def _current(self, thing: Thing) -> dict[str, Any]:
        current = await self._latest.of(thing.id)
        for command in await self._commands.open_of(thing.id):
            if command.kind == "SET_PROPERTIES":
                current.update(command.payload["properties"])
        return current

    async def _issue(self, principal: Principal, drafts: Sequence[Draft]) -> list[Command]:
        if sum(draft.size for draft in drafts) > LARGEST_REQUEST:
            raise TooLarge(f"the commands of a request may have {LARGEST_REQUEST} bytes")
        moment = now()
        commands = [
            Command(
                id=await self._ids.take(),
                thing_id=draft.thing.id,
                sn=draft.thing.sn,
                tenant=draft.thing.tenant,
                application_id=principal.application_id,
                kind=draft.kind,
                payload=draft.payload,
                profile=draft.thing.profile,
                created_at=moment,
                expires_at=moment + self._life,
                status="SENT" if draft.thing.online else "PENDING",
            )
            for draft in drafts
        ]
        entries = [entry for command in commands for entry in created(command)]
        await self._writer.write(commands, entries)
        return commands


def _draft(thing: Thing, kind: Kind, payload: dict[str, Any]) -> Draft:
    """A draft of a command that the bus can carry."""
    size = len(msgspec.json.encode(payload))
    if size > LARGEST_COMMAND:
        raise TooLarge(f"a command may have {LARGEST_COMMAND} bytes")
    return Draft(thing, kind, payload, size)


def read_device_ids(given: "list[int | str] | str") -> list[int]:
    """Read `deviceIds`: numbers, decimal text, or text with commas or semicolons."""
    parts = given if isinstance(given, list) else [given]
    ids: list[int] = []
    for part in parts:
        for text in re.split(r"[,;]", part) if isinstance(part, str) else [str(part)]:
            if not re.fullmatch(r"[0-9]{1,16}", text.strip()) or not 0 < int(text) < 2**53:
                raise InvalidInput(f"'{text[:40]}' is not a device id", field="deviceIds")
            ids.append(int(text))
    unique = list(dict.fromkeys(ids))
    if not unique or len(unique) > MOST_DEVICES:
        raise InvalidInput(f"must name 1 to {MOST_DEVICES} devices", field="deviceIds")
    return unique


def describe(command: Command) -> Task:
    """The task that a command is to its application."""
    return Task(
        task_id=command.id,
        device_id=command.thing_id,
        type=command.type,
        kind=command.kind,
        status=command.status,
        created_at=int(command.created_at.timestamp() * 1000),
        expires_at=int(command.expires_at.timestamp() * 1000),
        err_code=ERROR_CODES.get(command.status, ""),
        err_msg=command.error,
        finished_at=int(command.finished_at.timestamp() * 1000) if command.finished_at else None,
        service_id=command.service_id or None,
        outputs=command.outputs,
        subcommand=subcommands(command),
    )
