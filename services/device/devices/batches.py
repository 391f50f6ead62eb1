"""`/device-batch`: operations on selections of devices, with one result for each."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.envelope import console_code
from libs.common.errors import ThingwayError
from libs.common.http import Requester
from libs.common.http.console import ids_of, post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.devices.schemas import DeviceResults, MoveDevices, TagDevices
from services.device.devices.users import Outcomes, UserDevices
from services.device.things.schemas import DeleteDevices, DeviceResult

Users = NamedDependency[UserDevices]


@post("/move", guards=[holders(Function.DEVICE_EDIT)], example={"device_id_list": []})
async def move_each_device(
    principal: Requester, user_devices: Users, data: JSONBody[MoveDevices]
) -> DeviceResults:
    """Let devices be in a group, or in none; 404 when there is no such group."""
    outcomes = await user_devices.move_each(principal, data)
    return _results(outcomes)


@post(
    "/tag",
    guards=[holders(Function.DEVICE_EDIT)],
    example={"operation": "ADD", "device_id_list": [], "tags": ["ground floor"]},
)
async def tag_each_device(
    principal: Requester, user_devices: Users, data: JSONBody[TagDevices]
) -> DeviceResults:
    """Change tags of devices, those that applications give them too."""
    outcomes = await user_devices.tag_each(principal, data)
    return _results(outcomes)


@post(
    "/delete", guards=[holders(Function.DEVICE_DELETE)], example={"device_id_list": []}, waits=True
)
async def delete_each_device(
    principal: Requester, user_devices: Users, data: JSONBody[DeleteDevices]
) -> DeviceResults:
    """Delete devices through their integrations, whatever becomes of the others."""
    ids = ids_of(data.device_id_list)
    outcomes = await user_devices.delete_each(principal, ids)
    return _results(outcomes)


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


ROUTER = Router("/device-batch", route_handlers=operations_of(globals()), tags=["Devices"])
