"""`/device`: devices on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec import UNSET

from libs.common.contracts.auth import DeviceCredentials
from libs.common.contracts.names import DeviceCanvas
from libs.common.errors import InvalidInput
from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, Page, PathId, answer, get, post, put
from libs.common.http.guards import holders
from libs.common.http.request import is_seen
from libs.common.identity.functions import Function
from services.device.devices.adding import DeviceAdder
from services.device.devices.places import NOT_BOTH, location_of
from services.device.devices.schemas import (
    CreateDevice,
    DeleteDevices,
    DeviceDetail,
    FindDevices,
    MoveDevices,
    RenameDevice,
    SentLocation,
    ShownDevice,
)
from services.device.devices.users import UserDevices
from services.device.things.model import Location


@post(
    "/search",
    guards=[holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW, Function.DASHBOARD_EDIT)],
    summary="Search devices",
    example={"name": "roof", "page_size": 10, "page_number": 1},
)
async def find_devices(
    request: HttpRequest,
    user_devices: NamedDependency[UserDevices],
    data: JSONBody[FindDevices | None] = None,
) -> Answer[Page[ShownDevice]]:
    """The devices that the caller sees, the newest first; always a page."""
    wanted = data or FindDevices()
    return answer(request, await user_devices.search(principal_of(request), wanted))


@post(
    "/",
    guards=[holders(Function.DEVICE_ADD)],
    summary="Add a device",
    example={
        "name": "Roof",
        "integration": "direct",
        "param_entities": {"direct.integration.add_device.sn": "ROOF0003"},
    },
)
async def create_device(
    request: HttpRequest, device_adder: NamedDependency[DeviceAdder], data: JSONBody[CreateDevice]
) -> Answer[None]:
    """Add a device through its integration; 409 for one that there is already."""
    await device_adder.add(principal_of(request), data)
    return answer(request)


@post("/batch-delete", guards=[holders(Function.DEVICE_DELETE)], summary="Delete devices")
async def delete_devices(
    request: HttpRequest,
    user_devices: NamedDependency[UserDevices],
    data: JSONBody[DeleteDevices],
) -> Answer[None]:
    """Delete devices through their integrations; unknown ids are passed over."""
    await user_devices.delete(principal_of(request), data)
    return answer(request)


@post(
    "/move-to-group",
    guards=[holders(Function.DEVICE_EDIT)],
    summary="Move devices to a group",
    example={"device_id_list": []},
)
async def move_devices(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], data: JSONBody[MoveDevices]
) -> Answer[None]:
    """Let devices be in a group, or in none; unknown devices are passed over."""
    await user_devices.move(principal_of(request), data)
    return answer(request)


@get("/{device_id:str}", guards=[holders(Function.DEVICE_VIEW)], summary="Get a device")
async def get_device_detail(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], device_id: PathId
) -> Answer[DeviceDetail]:
    """A device with its entities.

    Who added a device that connects itself reads its first key here, once: the `key` of an
    entity besides its own. `POST /device/{device_id}/credentials` makes another one.
    """
    return answer(
        request, await user_devices.get(principal_of(request), device_id, seen=is_seen(request))
    )


@put("/{device_id:str}", guards=[holders(Function.DEVICE_EDIT)], summary="Rename a device")
async def rename_device(
    request: HttpRequest,
    user_devices: NamedDependency[UserDevices],
    device_id: PathId,
    data: JSONBody[RenameDevice],
) -> Answer[None]:
    """Give a device another name."""
    await user_devices.rename(principal_of(request), device_id, data)
    return answer(request)


@post(
    "/{device_id:str}/credentials",
    guards=[holders(Function.DEVICE_EDIT)],
    summary="Issue device credentials",
)
async def issue_device_credentials(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], device_id: PathId
) -> Answer[DeviceCredentials]:
    """Make a new key for a device, shown only here; the old one dies."""
    return answer(request, await user_devices.issue_credentials(principal_of(request), device_id))


@get(
    "/{device_id:str}/location",
    guards=[holders(Function.DEVICE_VIEW)],
    summary="Get the location of a device",
)
async def get_device_location(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], device_id: PathId
) -> Answer[Location | None]:
    """Where a device is; nothing where that is not known."""
    location = await user_devices.location(principal_of(request), device_id)
    return answer(request, UNSET if location is None else location)


@get(
    "/{device_id:str}/canvas",
    guards=[holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW)],
    summary="Get the canvas of a device",
)
async def get_device_canvas(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], device_id: PathId
) -> Answer[DeviceCanvas]:
    """Which canvas it has: the same for all users; it is made at the first call."""
    return answer(request, await user_devices.canvas(principal_of(request), device_id))


@put(
    "/{device_id:str}/location",
    guards=[holders(Function.DEVICE_EDIT)],
    summary="Set the location of a device",
    example={"latitude": "52.520008", "longitude": "13.404954", "address": "Alexanderplatz"},
)
async def set_device_location(
    request: HttpRequest,
    user_devices: NamedDependency[UserDevices],
    device_id: PathId,
    data: JSONBody[SentLocation],
) -> Answer[None]:
    """Say where a device is (WGS 84)."""
    location = location_of(data)
    if location is None:
        raise InvalidInput("is required", field="latitude", code=NOT_BOTH)
    await user_devices.place(principal_of(request), device_id, location)
    return answer(request)


@post(
    "/{device_id:str}/clear-location",
    guards=[holders(Function.DEVICE_EDIT)],
    summary="Clear the location of a device",
)
async def clear_device_location(
    request: HttpRequest, user_devices: NamedDependency[UserDevices], device_id: PathId
) -> Answer[None]:
    """Forget where a device is."""
    await user_devices.place(principal_of(request), device_id, None)
    return answer(request)


ROUTER = Router(
    "/device",
    route_handlers=[
        create_device,
        find_devices,
        delete_devices,
        get_device_detail,
        rename_device,
        issue_device_credentials,
        move_devices,
        get_device_canvas,
        get_device_location,
        set_device_location,
        clear_device_location,
    ],
    tags=["Devices"],
)
