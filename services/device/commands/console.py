"""`/device-batch/configure`: tasks of a selection of devices, on the console."""

from typing import Any

import msgspec
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
from services.device.commands.model import Command
from services.device.commands.selections import Selections
from services.device.devices.schemas import DeleteDevices, DeviceResult


class ConfigureDevices(DeleteDevices):
    """Body of `POST /device-batch/configure`; properties as their TSL has them."""

    properties: dict[str, Any]


class ConfiguredDevice(DeviceResult, kw_only=True):
    """What became of one device: its task, whose end an event tells."""

    task_id: str | None = None


class ConfiguredDevices(msgspec.Struct):
    """One result for each device, in the order they came."""

    results: list[ConfiguredDevice]


@post(
    "/configure",
    guards=[holders(Function.DEVICE_EDIT)],
    summary="Configure a selection of devices",
    example={"device_id_list": [], "properties": {"interval": 60}},
)
async def configure_each_device(
    principal: Requester, selections: NamedDependency[Selections], data: JSONBody[ConfigureDevices]
) -> ConfiguredDevices:
    """Ask devices to take on properties, each as a task; whoever is away gets it later."""
    ids = ids_of(data.device_id_list)
    results = await selections.configure(principal, ids, data.properties)
    return ConfiguredDevices([_shown(one, results[one]) for one in ids])


def _shown(device: int, result: Command | ThingwayError) -> ConfiguredDevice:
    if isinstance(result, Command):
        task = str(result.id)
        return ConfiguredDevice(device_id=str(device), status="SUCCESS", task_id=task)
    return ConfiguredDevice(
        device_id=str(device),
        status="FAILED",
        error_code=console_code(result),
        error_message=result.text,
    )


ROUTER = Router("/device-batch", route_handlers=operations_of(globals()), tags=["Devices"])
