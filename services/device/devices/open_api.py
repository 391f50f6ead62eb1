"""`/device/openapi/v1/devices`: adding, finding, changing and ending devices."""

from typing import Any

from litestar import Request, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials
from libs.common.envelope import Success
from libs.common.http import REFUSALS, ok, principal_of
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

_PATH = "/device/openapi/v1/devices"
_ONE = f"{_PATH}/{{device_id:int}}"
_TAGS = ["Devices"]


@post(_PATH, responses=REFUSALS, status_code=200, summary="Add a device", tags=_TAGS)
async def add_device(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    data: JSONBody[AddDevice],
) -> Success[DeviceRef]:
    """Add a device to the application; its TSL can be read right after."""
    return ok(request, await device_service.add(principal_of(request), data))


@post(f"{_PATH}/search", responses=REFUSALS, status_code=200, summary="Search devices", tags=_TAGS)
async def search_devices(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    data: JSONBody[SearchDevices],
) -> Success[DevicePage]:
    """Devices of the application, filtered, sorted and paged."""
    return ok(request, await device_service.search(principal_of(request), data))


@get(_ONE, responses=REFUSALS, summary="Get a device", tags=_TAGS)
async def get_device(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    device_id: DeviceId,
) -> Success[DeviceRecord]:
    """The whole record of a device."""
    return ok(request, await device_service.get(principal_of(request), device_id))


@put(_PATH, responses=REFUSALS, summary="Update a device", tags=_TAGS)
async def update_device(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    data: JSONBody[UpdateDevice],
) -> Success[DeviceRef]:
    """Change what people say of a device, and the TSL version it follows."""
    return ok(request, await device_service.update(principal_of(request), data))


@delete(_ONE, responses=REFUSALS, status_code=200, summary="Delete a device", tags=_TAGS)
async def delete_device(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    device_id: DeviceId,
) -> Success[str]:
    """Delete a device and its key; answers its SN."""
    return ok(request, await device_service.delete(principal_of(request), device_id))


@put(
    f"{_PATH}/remove/{{device_id:int}}",
    responses=REFUSALS,
    summary="Remove a device from the application",
    tags=_TAGS,
)
async def remove_device(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    device_id: DeviceId,
) -> Success[None]:
    """Take a device from the application; it keeps its id and history."""
    await device_service.remove(principal_of(request), device_id)
    return ok(request)


@get(f"{_ONE}/thing-specification", responses=REFUSALS, summary="Query TSL model", tags=_TAGS)
async def thing_specification(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    device_id: DeviceId,
) -> Success[TslDocument]:
    """The TSL of a device."""
    tsl = await device_service.thing_specification(principal_of(request), device_id)
    return ok(request, tsl)


@post(
    f"{_ONE}/credentials",
    responses=REFUSALS,
    status_code=200,
    summary="Issue device credentials",
    tags=_TAGS,
)
async def issue_credentials(
    request: Request[Any, Any, Any],
    device_service: NamedDependency[DeviceService],
    device_id: DeviceId,
) -> Success[DeviceCredentials]:
    """Make a new key for a device, shown only here; the old one dies."""
    issued = await device_service.issue_credentials(principal_of(request), device_id)
    return ok(request, issued)


ROUTES = [
    add_device,
    search_devices,
    get_device,
    update_device,
    delete_device,
    remove_device,
    thing_specification,
    issue_credentials,
]
