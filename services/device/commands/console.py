"""Console operations on properties and commands of devices."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.events import TaskStatus
from libs.common.envelope import console_code
from libs.common.errors import NotFound, ThingwayError
from libs.common.http import RequestPrincipal
from libs.common.http.console import Page, PageRequest, ResponseModel, distinct_ids, get, post
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader
from libs.common.tsl import MASK, TslDocument
from services.device.commands.events import error_code
from services.device.commands.model import Command, CommandDraft, CommandKind
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import GrantedDevices, ThingDirectory
from services.device.things.model import Thing
from services.device.things.schemas import DeviceResult, DeviceSelection

CommandOrErrorByDevice = dict[int, Command | ThingwayError]
"""The issued command or the error of each device, by device id."""


@dataclass(frozen=True)
class BatchConfigurator:
    """Issues the same property update to several devices."""

    commands: CommandService
    devices: DeviceStore
    things: ThingDirectory
    grants: GrantReader

    async def configure(
        self, principal: Principal, ids: Sequence[int], properties: dict[str, Any]
    ) -> CommandOrErrorByDevice:
        """Issue a command for each device that the user sees and whose TSL accepts `properties`.

        All of these commands are stored, or none. Raises `TooLarge`, or `InvalidInput` for a codec
        that cannot encode.
        """
        grants = await self.grants.read(principal)
        results: CommandOrErrorByDevice = {
            device_id: NotFound(f"device {device_id} not found", field="device_id")
            for device_id in ids
        }
        devices = await self.devices.find_all(principal.tenant, ids)
        visible = [
            device
            for device in devices
            if grants.allows_device(device.id, device.integration, device.group)
        ]
        drafts: list[CommandDraft] = []
        things = await self.things.build_things(visible)
        checked = await self.commands.draft_property_updates(
            [(thing, properties) for thing in things]
        )
        for thing, draft in zip(things, checked, strict=True):
            if isinstance(draft, CommandDraft):
                drafts.append(draft)
            else:
                results[thing.id] = draft
        if drafts:
            commands = await self.commands.issue(principal, drafts)
            results.update({command.thing_id: command for command in commands})
        return results


@dataclass(frozen=True)
class DeviceCommands:
    """Commands of one device, for a user with a grant for it."""

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
        """Return up to `limit` commands, newest first, and how many match.

        No `statuses` means all. Commands of earlier owners are excluded.
        """
        device = await self.devices.find(principal, device_id)
        commands, total = await self.store.page(device, statuses, skip, limit)
        tsl = (await self.things.build_thing(device)).tsl
        return (command.conceal_values(tsl) async for command in commands), total

    async def get_tsl(self, principal: Principal, device_id: int) -> TslDocument:
        """Return the TSL document of a device."""
        return (await self._find_thing(principal, device_id)).tsl.document

    async def update_properties(
        self, principal: Principal, device_id: int, properties: dict[str, Any]
    ) -> Command:
        """Issue a property update; one invalid value rejects the update."""
        thing = await self._find_thing(principal, device_id)
        return await self.commands.update_thing_properties(principal, thing, properties)

    async def call_service(
        self, principal: Principal, device_id: int, service_id: str, inputs: dict[str, Any] | None
    ) -> Command:
        """Issue a call of a service in the device's TSL."""
        thing = await self._find_thing(principal, device_id)
        return await self.commands.call_thing_service(principal, thing, service_id, inputs)

    async def _find_thing(self, principal: Principal, device_id: int) -> Thing:
        return await self.things.build_thing(await self.devices.find(principal, device_id))


DeviceCommandsDependency = NamedDependency[DeviceCommands]


class ConfigureDevices(DeviceSelection):
    """Body of `POST /device-batch/configure`; `properties` follow the TSL."""

    properties: dict[str, Any]


class ConfiguredDevice(DeviceResult, kw_only=True):
    """Result for one device: its task, or an error."""

    task_id: str | None = None


class ConfiguredDevices(msgspec.Struct):
    """One result for each device, in the order of the request."""

    results: list[ConfiguredDevice]
    """Results of the devices."""


@post(
    "/device-batch/configure",
    guards=[allow_holders(Function.DEVICE_EDIT)],
    example={"device_id_list": [], "properties": {"interval": 60}},
)
async def configure_each_device(
    principal: RequestPrincipal,
    configurator: NamedDependency[BatchConfigurator],
    data: JSONBody[ConfigureDevices],
) -> ConfiguredDevices:
    """Update the same properties of several devices, one task per device.

    Offline devices receive the update when they connect.
    """
    ids = distinct_ids(data.device_id_list)
    results = await configurator.configure(principal, ids, data.properties)
    return ConfiguredDevices([_describe_result(device_id, results[device_id]) for device_id in ids])


class FindCommands(PageRequest, kw_only=True):
    """Body of `POST /device/{device_id}/commands/search`; results are newest first."""

    largest: ClassVar[int] = 100
    status: Annotated[list[TaskStatus], msgspec.Meta(max_length=5)] | None = None


class CommandResponse(ResponseModel, kw_only=True):
    """A command of a device and its result; times are in ms."""

    id: str
    kind: CommandKind
    """Whether the command sets properties or a profile, or calls a service."""
    status: TaskStatus
    """`PENDING` (queued), `SENT`, `SUCCESS`, `FAILED` or `TIMEOUT` (expired)."""
    payload: dict[str, Any]
    """`properties`, `values`, or `serviceId` and `inputs`.

    A write-only value is shown as `******`.
    """
    created_at: int
    expires_at: int
    finished_at: int | None = None
    outputs: dict[str, Any] | None = None
    error: str | None = None
    """Reason of the failure."""
    error_code: str | None = None
    """Why a command failed, for example `device_refused` or `device_did_not_answer`."""
    attempts: int
    """Position in a list of growing pauses between repetitions. It is no count of repetitions.

    It is 0 after the device connects.
    """
    carrier: str | None = None
    """The integration that delivers the command; absent if no integration does."""
    application_id: str | None = None
    user_id: str | None = None


@post(
    "/device/{device_id:str}/commands/search",
    guards=[allow_holders(Function.DEVICE_VIEW)],
    example={"page_size": 20, "page_number": 1},
)
async def find_device_commands(
    principal: RequestPrincipal,
    device_commands: DeviceCommandsDependency,
    device_id: PathId,
    data: JSONBody[FindCommands | None] = None,
) -> StreamedAnswer[Page[CommandResponse]]:
    """Search the commands of a device; closed ones are deleted, by default after 90 days."""
    search = data or FindCommands()
    rows, total = await device_commands.page(
        principal, device_id, search.status or (), search.skip, search.size
    )
    size = search.size if search.is_paged else min(search.size, total)
    page: Page[CommandResponse] = Page(
        page_size=size, page_number=search.number, total=total, content=[]
    )
    return StreamedAnswer(page, (_command_response(command) async for command in rows))


class SetProperties(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/properties`; `properties` follow the TSL."""

    properties: dict[str, Any]


class CallDeviceService(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/services/call`."""

    service_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    """Id of the service in the TSL, for example `reboot`."""
    inputs: dict[str, Any] | None = None


@get(
    "/device/{device_id:str}/tsl",
    guards=[allow_holders(Function.DEVICE_VIEW)],
    summary="Get TSL of device",
)
async def get_device_tsl(
    principal: RequestPrincipal, device_commands: DeviceCommandsDependency, device_id: PathId
) -> TslDocument:
    """Return the thing specification (TSL) that the device follows."""
    return await device_commands.get_tsl(principal, device_id)


@post("/device/{device_id:str}/properties", guards=[allow_holders(Function.DEVICE_EDIT)])
async def set_device_properties(
    principal: RequestPrincipal,
    device_commands: DeviceCommandsDependency,
    device_id: PathId,
    data: JSONBody[SetProperties],
) -> CommandResponse:
    """Update properties of a device; values change when it confirms the command.

    Errors name the value, such as `properties.interval`.
    """
    return _command_response(
        await device_commands.update_properties(principal, device_id, data.properties)
    )


@post("/device/{device_id:str}/services/call", guards=[allow_holders(Function.DEVICE_EDIT)])
async def call_service_of_device(
    principal: RequestPrincipal,
    device_commands: DeviceCommandsDependency,
    device_id: PathId,
    data: JSONBody[CallDeviceService],
) -> CommandResponse:
    """Call a service of a device; a successful command contains its outputs.

    Errors name the value, such as `inputs.seconds`.
    """
    command = await device_commands.call_service(principal, device_id, data.service_id, data.inputs)
    return _command_response(command)


def _command_response(command: Command) -> CommandResponse:
    return CommandResponse.from_fields(
        command,
        payload=mask_payload(command),
        error_code=error_code(command) or None,
        attempts=command.pause_index,
    )


def mask_payload(command: Command) -> dict[str, Any]:
    """Return the payload of a command with a mask for each entirely write-only setting."""
    missing = command.write_only and [
        k for k, v in command.settings_with_hidden_as_none() if v is None
    ]
    if not missing:
        return command.payload
    if command.kind == "SET_PROPERTIES":
        return {"properties": command.payload["properties"] | dict.fromkeys(missing, MASK)}
    return {"values": [*command.payload["values"], *({"key": k, "value": MASK} for k in missing)]}


def _describe_result(device_id: int, result: Command | ThingwayError) -> ConfiguredDevice:
    if isinstance(result, Command):
        task = str(result.id)
        return ConfiguredDevice(device_id=str(device_id), status="SUCCESS", task_id=task)
    return ConfiguredDevice(
        device_id=str(device_id),
        status="FAILED",
        error_code=console_code(result),
        error_message=result.text,
    )


ROUTER = route_operations(globals(), "/", tags=["Devices"])
