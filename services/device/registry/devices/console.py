"""`/device` and `/device-batch`: devices on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials, LastRefusedLogin
from libs.common.contracts.names import DeviceCanvas
from libs.common.envelope import console_code
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.http import HttpRequest, RequestPrincipal, principal_of
from libs.common.http.console import Page, distinct_ids, get, post, put
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.http.request import needs_body
from libs.common.http.streaming import Streamed
from libs.common.identity.functions import Function
from services.device.registry.devices.console_service import Outcomes, UserDevices
from services.device.registry.devices.integration_devices import DeviceAdder
from services.device.registry.devices.schemas import (
    CreateDevice,
    DeviceDetail,
    DeviceResults,
    FindDevices,
    MoveDevices,
    RenameDevice,
    SentLocation,
    ShownDevice,
    TagDevices,
)
from services.device.registry.devices.search import NOT_BOTH, location_of
from services.device.things.model import Location
from services.device.things.schemas import DeleteDevices, DeviceResult

Devices = NamedDependency[UserDevices]


@post(
    "/search",
    guards=[holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW, Function.DASHBOARD_EDIT)],
    example={"name": "roof", "page_size": 10, "page_number": 1},
)
async def find_devices(
    principal: RequestPrincipal, user_devices: Devices, data: JSONBody[FindDevices | None] = None
) -> Streamed[Page[ShownDevice]]:
    """The devices that the caller sees, the newest first; always a page."""
    return await user_devices.search(principal, data or FindDevices())


@post(
    "/",
    guards=[holders(Function.DEVICE_ADD)],
    example={
        "name": "Roof",
        "integration": "direct",
        "param_entities": {"direct.integration.add_device.sn": "ROOF0003"},
    },
    waits=True,
)
async def create_device(
    principal: RequestPrincipal,
    device_adder: NamedDependency[DeviceAdder],
    data: JSONBody[CreateDevice],
) -> None:
    """Add a device through its integration; 409 for one that there is already."""
    await device_adder.add(principal, data)


@post("/batch-delete", guards=[holders(Function.DEVICE_DELETE)], waits=True)
async def delete_devices(
    principal: RequestPrincipal, user_devices: Devices, data: JSONBody[DeleteDevices]
) -> None:
    """Delete devices through their integrations; unknown ids are passed over."""
    await user_devices.delete(principal, data)


@post("/move-to-group", guards=[holders(Function.DEVICE_EDIT)], example={"device_id_list": []})
async def move_devices(
    principal: RequestPrincipal, user_devices: Devices, data: JSONBody[MoveDevices]
) -> None:
    """Let devices be in a group, or in none; unknown devices are passed over."""
    await user_devices.move(principal, data)


@get("/{device_id:str}", guards=[holders(Function.DEVICE_VIEW)])
async def get_device_detail(
    request: HttpRequest, user_devices: Devices, device_id: PathId
) -> DeviceDetail:
    """A device with its entities.

    Who added a device that connects itself reads its first key here: the `key` of an entity
    besides its own. It is shown for 10 minutes, until the device logs in. `POST
    /device/{device_id}/credentials` makes another one.
    """
    return await user_devices.get(principal_of(request), device_id, seen=needs_body(request))


@put("/{device_id:str}", guards=[holders(Function.DEVICE_EDIT)])
async def rename_device(
    principal: RequestPrincipal,
    user_devices: Devices,
    device_id: PathId,
    data: JSONBody[RenameDevice],
) -> None:
    """Give a device another name."""
    await user_devices.rename(principal, device_id, data)


@post("/{device_id:str}/credentials", guards=[holders(Function.DEVICE_EDIT)])
async def issue_device_credentials(
    principal: RequestPrincipal, user_devices: Devices, device_id: PathId
) -> DeviceCredentials:
    """Make a new key for a device, shown only here; the old one dies."""
    return await user_devices.issue_credentials(principal, device_id)


@get("/{device_id:str}/refused-login", guards=[holders(Function.DEVICE_VIEW)])
async def get_refused_login(
    principal: RequestPrincipal, user_devices: Devices, device_id: PathId
) -> LastRefusedLogin:
    """When somebody came last as the device with a wrong key or certificate, and over what.

    Nothing where that was not in the last 7 days.
    """
    return await user_devices.find_last_refused_login(principal, device_id)


@get("/{device_id:str}/location", guards=[holders(Function.DEVICE_VIEW)])
async def get_device_location(
    principal: RequestPrincipal, user_devices: Devices, device_id: PathId
) -> Location | None:
    """Where a device is; nothing where that is not known."""
    return await user_devices.location(principal, device_id)


@get("/{device_id:str}/canvas", guards=[holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW)])
async def get_device_canvas(
    principal: RequestPrincipal, user_devices: Devices, device_id: PathId
) -> DeviceCanvas:
    """Which canvas it has: the same for all users; it is made at the first call."""
    return await user_devices.canvas(principal, device_id)


@put(
    "/{device_id:str}/location",
    guards=[holders(Function.DEVICE_EDIT)],
    example={"latitude": "52.520008", "longitude": "13.404954", "address": "Alexanderplatz"},
)
async def set_device_location(
    principal: RequestPrincipal,
    user_devices: Devices,
    device_id: PathId,
    data: JSONBody[SentLocation],
) -> None:
    """Say where a device is (WGS 84)."""
    location = location_of(data)
    if location is None:
        raise InvalidInput("is required", field="latitude", code=NOT_BOTH)
    await user_devices.set_location(principal, device_id, location)


@post("/{device_id:str}/clear-location", guards=[holders(Function.DEVICE_EDIT)])
async def clear_device_location(
    principal: RequestPrincipal, user_devices: Devices, device_id: PathId
) -> None:
    """Forget where a device is."""
    await user_devices.set_location(principal, device_id, None)


ROUTER = Router(
    "/device",
    route_handlers=operations_of(globals()),
    tags=["Devices"],
)


Users = NamedDependency[UserDevices]


@post("/move", guards=[holders(Function.DEVICE_EDIT)], example={"device_id_list": []})
async def move_each_device(
    principal: RequestPrincipal, user_devices: Users, data: JSONBody[MoveDevices]
) -> DeviceResults:
    """Let devices be in a group, or in none; 404 when there is no such group."""
    return _results(await user_devices.move_each(principal, data))


@post(
    "/tag",
    guards=[holders(Function.DEVICE_EDIT)],
    example={"operation": "ADD", "device_id_list": [], "tags": ["ground floor"]},
)
async def tag_each_device(
    principal: RequestPrincipal, user_devices: Users, data: JSONBody[TagDevices]
) -> DeviceResults:
    """Change tags of devices, those that applications give them too."""
    return _results(await user_devices.tag_each(principal, data))


@post(
    "/delete", guards=[holders(Function.DEVICE_DELETE)], example={"device_id_list": []}, waits=True
)
async def delete_each_device(
    principal: RequestPrincipal, user_devices: Users, data: JSONBody[DeleteDevices]
) -> DeviceResults:
    """Delete devices through their integrations, whatever becomes of the others."""
    ids = distinct_ids(data.device_id_list)
    return _results(await user_devices.delete_each(principal, ids))


def _results(outcomes: Outcomes) -> DeviceResults:
    return DeviceResults([_result(device, error) for device, error in outcomes.items()])


def _result(device: int, error: ThingwayError | None) -> DeviceResult:
    if error is None:
        return DeviceResult(device_id=str(device), status="SUCCESS")
    return DeviceResult(
        device_id=str(device),
        status="FAILED",
        error_code=console_code(error),
        error_message=error.message,
    )


BATCH_ROUTER = Router(
    "/device-batch",
    route_handlers=[move_each_device, tag_each_device, delete_each_device],
    tags=["Devices"],
)
