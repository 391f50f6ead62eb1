"""`/device/openapi/v1/devices`: operations of applications on devices."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials
from libs.common.http import RequestPrincipal
from libs.common.http.ids import PathId
from libs.common.http.open_api import delete, get, post, put
from libs.common.http.operations import route_operations
from libs.common.tsl import TslDocument
from services.device.registry.devices.schemas import (
    AddDevice,
    DevicePage,
    DeviceRecord,
    DeviceRef,
    SearchDevices,
    UpdateDevice,
)
from services.device.registry.devices.service import DeviceService

DeviceServiceDependency = NamedDependency[DeviceService]


@post("/", example={"snDevEUI": "ROOF0001", "name": "Roof", "project": "Roofs", "tag": ["north"]})
async def add_device(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, data: JSONBody[AddDevice]
) -> DeviceRef:
    """Add a device to the application; its TSL can be read immediately."""
    return await device_service.add(principal, data)


@post(
    "/search", example={"pageSize": 50, "pageNumber": 1, "connectStatus": ["ONLINE", "DISCONNECT"]}
)
async def search_devices(
    principal: RequestPrincipal,
    device_service: DeviceServiceDependency,
    data: JSONBody[SearchDevices],
) -> DevicePage:
    """List devices of the application, filtered, sorted and paged.

    All filters must match. `sn`, `devEUI` and `imei` must equal the whole value; `keyword`, `name`,
    `model` and versions match values that contain them. These filters ignore case; `project` and
    `tag` must be equal. A filter with a list matches if one of its values matches.
    """
    return await device_service.search(principal, data)


@get("/{device_id:str}")
async def get_device(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, device_id: PathId
) -> DeviceRecord:
    """Return the whole record of a device."""
    return await device_service.get(principal, device_id)


@put("/")
async def update_device(
    principal: RequestPrincipal,
    device_service: DeviceServiceDependency,
    data: JSONBody[UpdateDevice],
) -> DeviceRef:
    """Change the name and other details of a device, or the TSL version that it follows.

    `name` is required. Other absent and null fields stay unchanged.
    """
    return await device_service.update(principal, data)


@delete("/{device_id:str}")
async def delete_device(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, device_id: PathId
) -> str:
    """Delete a device, even after its removal from the application; return its SN."""
    return await device_service.delete(principal, device_id)


@put("/remove/{device_id:str}")
async def remove_device(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, device_id: PathId
) -> None:
    """Remove a device from the application.

    Its open tasks end; its id and history stay. Its key ends, unless the device belonged to the
    users before a super-admin assigned it: then it belongs to them again.
    """
    await device_service.remove_from_application(principal, device_id)


@get("/{device_id:str}/thing-specification")
async def get_thing_specification(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, device_id: PathId
) -> TslDocument:
    """Return the thing specification (TSL) of a device."""
    return await device_service.get_thing_specification(principal, device_id)


@post("/{device_id:str}/credentials")
async def issue_credentials(
    principal: RequestPrincipal, device_service: DeviceServiceDependency, device_id: PathId
) -> DeviceCredentials:
    """Issue a new key for a device, shown only here.

    The previous key stops working immediately.
    """
    return await device_service.issue_credentials(principal, device_id)


ROUTER = route_operations(globals(), "/device/openapi/v1/devices", tags=["Devices"])
