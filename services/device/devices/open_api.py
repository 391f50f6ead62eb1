"""`/device/openapi/v1/devices`: adding, finding, changing and ending devices."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials
from libs.common.envelope import Success
from libs.common.http import HttpRequest, ok, principal_of
from libs.common.http.open_api import delete, get, post, put
from libs.common.http.operations import operations_of
from libs.common.tsl import TslDocument
from services.device.devices.schemas import (
    AddDevice,
    DevicePage,
    DeviceRecord,
    DeviceRef,
    SearchDevices,
    UpdateDevice,
)
from services.device.devices.service import DeviceService
from services.device.things.access import DeviceId


@post(
    "/",
    summary="Add a device",
    example={"snDevEUI": "ROOF0001", "name": "Roof", "project": "Roofs", "tag": ["north"]},
)
async def add_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], data: JSONBody[AddDevice]
) -> Success[DeviceRef]:
    """Add a device to the application; its TSL can be read right after."""
    return ok(request, await device_service.add(principal_of(request), data))


@post(
    "/search",
    summary="Search devices",
    example={"pageSize": 50, "pageNumber": 1, "connectStatus": ["ONLINE", "DISCONNECT"]},
)
async def search_devices(
    request: HttpRequest,
    device_service: NamedDependency[DeviceService],
    data: JSONBody[SearchDevices],
) -> Success[DevicePage]:
    """Devices of the application, filtered, sorted and paged."""
    return ok(request, await device_service.search(principal_of(request), data))


@get("/{device_id:str}", summary="Get a device")
async def get_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[DeviceRecord]:
    """The whole record of a device."""
    return ok(request, await device_service.get(principal_of(request), device_id))


@put("/", summary="Update a device")
async def update_device(
    request: HttpRequest,
    device_service: NamedDependency[DeviceService],
    data: JSONBody[UpdateDevice],
) -> Success[DeviceRef]:
    """Change what people say of a device, and the TSL version it follows."""
    return ok(request, await device_service.update(principal_of(request), data))


@delete("/{device_id:str}", summary="Delete a device")
async def delete_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[str]:
    """Delete a device, also one that was removed from the application; answers its SN."""
    return ok(request, await device_service.delete(principal_of(request), device_id))


@put("/remove/{device_id:str}", summary="Remove a device from the application")
async def remove_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[None]:
    """Take a device from the application: its key and open tasks end, its id and history stay."""
    await device_service.remove(principal_of(request), device_id)
    return ok(request)


@get("/{device_id:str}/thing-specification", summary="Query TSL model")
async def get_thing_specification(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[TslDocument]:
    """The TSL of a device."""
    tsl = await device_service.thing_specification(principal_of(request), device_id)
    return ok(request, tsl)


@post("/{device_id:str}/credentials", summary="Issue device credentials")
async def issue_credentials(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[DeviceCredentials]:
    """Make a new key for a device, shown only here; the old one dies."""
    issued = await device_service.issue_credentials(principal_of(request), device_id)
    return ok(request, issued)


ROUTER = Router(
    "/device/openapi/v1/devices", route_handlers=operations_of(globals()), tags=["Devices"]
)
