"""Wire shapes of property updates, service calls, configuration and tasks."""

from typing import Annotated, Any

import msgspec

from libs.common.contracts.events import Subcommand, TaskStatus
from libs.common.http.ids import NamedId
from services.device.commands.model import Kind, TaskType

Text = Annotated[str, msgspec.Meta(max_length=128)]


class UpdateProperties(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `PATCH …/properties`."""

    properties: dict[str, Any]


class UpdatedProperties(msgspec.Struct):
    """Its answer: what was accepted, converted and rounded, without write-only values.

    Of a STRUCT it has the members that were sent.
    """

    properties: dict[str, Any]


class CallService(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Body of `POST …/services/call`; inputs by short member name."""

    service_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    inputs: dict[str, Any] | None = None


class ProfileValue(msgspec.Struct, forbid_unknown_fields=True):
    """One setting of a `PROFILE` configuration."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    value: Any = None


class Config(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A configuration: of type `TSL` with `properties`, of type `PROFILE` with `values`."""

    version: Text | None = None
    type: Text | None = None
    properties: dict[str, Any] | None = None
    values: list[ProfileValue] | None = None


class CreateTasks(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Body of `POST /tasks`; `deviceIds` may be text with commas or semicolons."""

    type: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=32,
            extra_json_schema={"extra": {"enum": ["TSL", "PROFILE"]}},
        ),
    ]
    device_ids: list[NamedId] | str
    config: Config


class DeviceTask(msgspec.Struct, rename="camel"):
    """The task of one device."""

    device_id: int
    task_id: int


class CreatedTasks(msgspec.Struct, rename="camel"):
    """Answer of `POST /tasks` (Task_Create_Result)."""

    device_task_relations: list[DeviceTask]


class Task(msgspec.Struct, rename="camel", omit_defaults=True):
    """A task and its state; times in ms."""

    task_id: int
    device_id: int
    type: TaskType
    kind: Kind
    status: TaskStatus
    created_at: int
    expires_at: int
    err_code: str = ""
    err_msg: str | None = None
    finished_at: int | None = None
    service_id: str | None = None
    outputs: dict[str, Any] | None = None
    subcommand: list[Subcommand] = msgspec.field(default_factory=list)
