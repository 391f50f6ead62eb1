"""`/device/openapi/v1/devices`: adding, finding, changing and ending devices."""

from functools import partial

from litestar import delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.contracts.auth import DeviceCredentials
from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok, principal_of
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
_delete = partial(delete, responses=REFUSALS, status_code=200, tags=_TAGS)
_get = partial(get, responses=REFUSALS, tags=_TAGS)
_post = partial(post, responses=REFUSALS, status_code=200, tags=_TAGS)
_put = partial(put, responses=REFUSALS, tags=_TAGS)


@_post(_PATH, summary="Add a device")
async def add_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], data: JSONBody[AddDevice]
) -> Success[DeviceRef]:
    """Add a device to the application; its TSL can be read right after."""
    return ok(request, await device_service.add(principal_of(request), data))


@_post(f"{_PATH}/search", summary="Search devices")
async def search_devices(
    request: HttpRequest,
    device_service: NamedDependency[DeviceService],
    data: JSONBody[SearchDevices],
) -> Success[DevicePage]:
    """Devices of the application, filtered, sorted and paged."""
    return ok(request, await device_service.search(principal_of(request), data))


@_get(_ONE, summary="Get a device")
async def get_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[DeviceRecord]:
    """The whole record of a device."""
    return ok(request, await device_service.get(principal_of(request), device_id))


@_put(_PATH, summary="Update a device")
async def update_device(
    request: HttpRequest,
    device_service: NamedDependency[DeviceService],
    data: JSONBody[UpdateDevice],
) -> Success[DeviceRef]:
    """Change what people say of a device, and the TSL version it follows."""
    return ok(request, await device_service.update(principal_of(request), data))


@_delete(_ONE, summary="Delete a device")
async def delete_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[str]:
    """Delete a device, also one that was removed from the application; answers its SN."""
    return ok(request, await device_service.delete(principal_of(request), device_id))


@_put(f"{_PATH}/remove/{{device_id:int}}", summary="Remove a device from the application")
async def remove_device(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[None]:
    """Take a device from the application: its key and open tasks end, its id and history stay."""
    await device_service.remove(principal_of(request), device_id)
    return ok(request)


@_get(f"{_ONE}/thing-specification", summary="Query TSL model")
async def thing_specification(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
) -> Success[TslDocument]:
    """The TSL of a device."""
    tsl = await device_service.thing_specification(principal_of(request), device_id)
    return ok(request, tsl)


@_post(f"{_ONE}/credentials", summary="Issue device credentials")
async def issue_credentials(
    request: HttpRequest, device_service: NamedDependency[DeviceService], device_id: DeviceId
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
