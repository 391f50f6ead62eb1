"""Device API operations on properties, configuration, service calls and tasks."""

from litestar import Response
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.envelope import Success
from libs.common.http import HttpRequest, RequestPrincipal, wrap_success
from libs.common.http.ids import PathId
from libs.common.http.open_api import get, patch, post
from libs.common.http.operations import route_operations
from libs.common.tsl import keep_given
from services.device.commands.model import (
    CallService,
    Config,
    CreatedTasks,
    CreateTasks,
    Task,
    UpdatedProperties,
    UpdateProperties,
)
from services.device.commands.service import CommandService

TASKS_PATH = "/device/openapi/v1/tasks"

CommandServiceDependency = NamedDependency[CommandService]


_LOCATION_HEADER = [
    ResponseHeader(
        name="Location",
        value=f"{TASKS_PATH}/1000017",
        description="The path of the task",
        documentation_only=True,
    )
]


def task_location_header(task_id: int) -> dict[str, str]:
    """Return a `Location` header with the path of a task."""
    return {"Location": f"{TASKS_PATH}/{task_id}"}


@patch(
    "/devices/{device_id:str}/properties",
    response_headers=_LOCATION_HEADER,
    example={"properties": {"reporting_interval": {"time": 10}}},
    tags=["Devices"],
)
async def update_device_properties(
    request: HttpRequest,
    principal: RequestPrincipal,
    commands: CommandServiceDependency,
    device_id: PathId,
    data: JSONBody[UpdateProperties],
) -> Response[Success[UpdatedProperties]]:
    """Update properties of a device; `Location` names the task."""
    command = await commands.update_properties(principal, device_id, data.properties)
    accepted = keep_given(data.properties, command.payload["properties"])
    answer = wrap_success(request, UpdatedProperties(accepted))
    return Response(answer, headers=task_location_header(command.id))


@get("/devices/{device_id:str}/config", tags=["Devices"])
async def get_device_config(
    principal: RequestPrincipal, commands: CommandServiceDependency, device_id: PathId
) -> Config:
    """Return the configuration of a device in the shape that a task accepts."""
    return await commands.get_config(principal, device_id)


@post(
    "/devices/{device_id:str}/services/call",
    response_headers=_LOCATION_HEADER,
    example={"serviceId": "reboot", "inputs": {}},
    tags=["Devices"],
)
async def call_device_service(
    request: HttpRequest,
    principal: RequestPrincipal,
    commands: CommandServiceDependency,
    device_id: PathId,
    data: JSONBody[CallService],
) -> Response[Success[None]]:
    """Call a service of a device; `Location` names the task."""
    command = await commands.call_service(principal, device_id, data.service_id, data.inputs)
    answer: Success[None] = wrap_success(request)
    return Response(answer, headers=task_location_header(command.id))


@post(
    "/tasks",
    example={
        "type": "TSL",
        "deviceIds": [1000000],
        "config": {"properties": {"reporting_interval": {"time": 10}}},
    },
    tags=["Tasks"],
)
async def create_tasks(
    principal: RequestPrincipal, commands: CommandServiceDependency, data: JSONBody[CreateTasks]
) -> CreatedTasks:
    """Configure one or several devices, one task per device."""
    relations = await commands.create_tasks(principal, data)
    return CreatedTasks(relations)


@get("/tasks/{task_id:str}", tags=["Tasks"])
async def get_task(
    principal: RequestPrincipal, commands: CommandServiceDependency, task_id: PathId
) -> Task:
    """Return the state of a configuration task or service call."""
    return await commands.get_task(principal, task_id)


ROUTER = route_operations(globals(), "/device/openapi/v1")
