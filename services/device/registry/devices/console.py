"""`/device` and `/device-batch`: devices in the management API."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials, LastRefusedLogin
from libs.common.contracts.names import DeviceCanvas
from libs.common.envelope import console_code
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.http import HttpRequest, RequestPrincipal, get_principal
from libs.common.http.console import Page, distinct_ids, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.http.request import needs_body
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity.functions import Function
from services.device.registry.devices.console_service import ErrorByDevice, UserDevices
from services.device.registry.devices.integration_devices import DeviceAdder
from services.device.registry.devices.schemas import (
    CreateDevice,
    DeviceDetail,
    DeviceResponse,
    DeviceResults,
    FindDevices,
    LocationInput,
    MoveDevices,
    RenameDevice,
    TagDevices,
)
from services.device.registry.devices.search import COORDINATE_MISSING_CODE, parse_location
from services.device.things.model import Location
from services.device.things.schemas import DeleteDevices, DeviceResult

UserDevicesDependency = NamedDependency[UserDevices]


@post(
    "/search",
    guards=[allow_holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW, Function.DASHBOARD_EDIT)],
    example={"name": "roof", "page_size": 10, "page_number": 1},
)
async def find_devices(
    principal: RequestPrincipal,
    user_devices: UserDevicesDependency,
    data: JSONBody[FindDevices | None] = None,
) -> StreamedAnswer[Page[DeviceResponse]]:
    """List the devices that the caller may see, by default the newest first.

    The response is a page even if the request has no page size.
    """
    return await user_devices.search(principal, data or FindDevices())


@post(
    "/",
    guards=[allow_holders(Function.DEVICE_ADD)],
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
    """Add a device through its integration; 409 if its SN is in use."""
    await device_adder.add(principal, data)


@post("/batch-delete", guards=[allow_holders(Function.DEVICE_DELETE)], waits=True)
async def delete_devices(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, data: JSONBody[DeleteDevices]
) -> None:
    """Delete devices through their integrations; ignore unknown ids."""
    await user_devices.delete(principal, data)


@post(
    "/move-to-group", guards=[allow_holders(Function.DEVICE_EDIT)], example={"device_id_list": []}
)
async def move_devices(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, data: JSONBody[MoveDevices]
) -> None:
    """Move devices to a group, or out of their group; ignore unknown ids."""
    await user_devices.move(principal, data)


@get("/{device_id:str}", guards=[allow_holders(Function.DEVICE_VIEW)])
async def get_device_detail(
    request: HttpRequest, user_devices: UserDevicesDependency, device_id: PathId
) -> DeviceDetail:
    """Return a device with its entities.

    The user who added a directly connected device also gets its first key, as the `key` of an
    additional entity. It is shown for 10 minutes, or until the device logs in. `POST
    /device/{device_id}/credentials` issues another one.
    """
    return await user_devices.get(
        get_principal(request), device_id, may_see_key=needs_body(request)
    )


@put("/{device_id:str}", guards=[allow_holders(Function.DEVICE_EDIT)])
async def rename_device(
    principal: RequestPrincipal,
    user_devices: UserDevicesDependency,
    device_id: PathId,
    data: JSONBody[RenameDevice],
) -> None:
    """Rename a device."""
    await user_devices.rename(principal, device_id, data)


@post("/{device_id:str}/credentials", guards=[allow_holders(Function.DEVICE_EDIT)])
async def issue_device_credentials(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, device_id: PathId
) -> DeviceCredentials:
    """Issue a new key for a device, shown only here.

    The previous key stops working immediately.
    """
    return await user_devices.issue_credentials(principal, device_id)


@get("/{device_id:str}/refused-login", guards=[allow_holders(Function.DEVICE_VIEW)])
async def get_refused_login(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, device_id: PathId
) -> LastRefusedLogin:
    """Return the time and the fault of the last rejected login of a device.

    The response is empty if no login was rejected in the last 7 days.
    """
    return await user_devices.find_last_rejected_login(principal, device_id)


@get("/{device_id:str}/location", guards=[allow_holders(Function.DEVICE_VIEW)])
async def get_device_location(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, device_id: PathId
) -> Location | None:
    """Return the location of a device; null if it is unknown."""
    return await user_devices.get_location(principal, device_id)


@get(
    "/{device_id:str}/canvas", guards=[allow_holders(Function.DEVICE_VIEW, Function.DASHBOARD_VIEW)]
)
async def get_device_canvas(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, device_id: PathId
) -> DeviceCanvas:
    """Return the canvas of a device, which all users share.

    The first call creates it.
    """
    return await user_devices.get_canvas(principal, device_id)


@put(
    "/{device_id:str}/location",
    guards=[allow_holders(Function.DEVICE_EDIT)],
    example={"latitude": "52.520008", "longitude": "13.404954", "address": "Alexanderplatz"},
)
async def set_device_location(
    principal: RequestPrincipal,
    user_devices: UserDevicesDependency,
    device_id: PathId,
    data: JSONBody[LocationInput],
) -> None:
    """Set the location of a device (WGS 84)."""
    location = parse_location(data)
    if location is None:
        raise InvalidInput("is required", field="latitude", code=COORDINATE_MISSING_CODE)
    await user_devices.set_location(principal, device_id, location)


@post("/{device_id:str}/clear-location", guards=[allow_holders(Function.DEVICE_EDIT)])
async def clear_device_location(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, device_id: PathId
) -> None:
    """Remove the location of a device."""
    await user_devices.set_location(principal, device_id, None)


ROUTER = route_operations(globals(), "/device", tags=["Devices"])


@post("/move", guards=[allow_holders(Function.DEVICE_EDIT)], example={"device_id_list": []})
async def move_each_device(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, data: JSONBody[MoveDevices]
) -> DeviceResults:
    """Move devices to a group, or out of their group; 404 if the group does not exist."""
    return _results_response(await user_devices.move_each(principal, data))


@post(
    "/tag",
    guards=[allow_holders(Function.DEVICE_EDIT)],
    example={"operation": "ADD", "device_id_list": [], "tags": ["ground floor"]},
)
async def tag_each_device(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, data: JSONBody[TagDevices]
) -> DeviceResults:
    """Change tags of devices, including tags that applications set."""
    return _results_response(await user_devices.tag_each(principal, data))


@post(
    "/delete",
    guards=[allow_holders(Function.DEVICE_DELETE)],
    example={"device_id_list": []},
    waits=True,
)
async def delete_each_device(
    principal: RequestPrincipal, user_devices: UserDevicesDependency, data: JSONBody[DeleteDevices]
) -> DeviceResults:
    """Delete devices through their integrations, each regardless of the others."""
    ids = distinct_ids(data.device_id_list)
    return _results_response(await user_devices.delete_each(principal, ids))


def _results_response(outcomes: ErrorByDevice) -> DeviceResults:
    return DeviceResults([_result_response(device, error) for device, error in outcomes.items()])


def _result_response(device: int, error: ThingwayError | None) -> DeviceResult:
    if error is None:
        return DeviceResult(device_id=str(device), status="SUCCESS")
    return DeviceResult(
        device_id=str(device),
        status="FAILED",
        error_code=console_code(error),
        error_message=error.message,
    )


BATCH_ROUTER = route_operations(globals(), "/device-batch", tags=["Devices"])
