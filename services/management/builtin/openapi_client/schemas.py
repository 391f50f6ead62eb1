"""The device open API, as far as a client of it needs it; unknown fields are ignored.

Ids come as numbers or as decimal text.
"""

from typing import Annotated, Any

import msgspec


class Envelope(msgspec.Struct, rename="camel"):
    """What every answer is wrapped in."""

    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    err_code: str | None = None
    err_msg: str | None = None


class Token(msgspec.Struct):
    """`data` of `POST /oauth/token`."""

    access_token: str


Id = int | Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""It becomes part of a path."""


class RemoteDevice(msgspec.Struct, rename="camel"):
    """A device of the other platform."""

    sn: str
    device_id: Id
    name: str | None = None
    model: str | None = None

    @property
    def id(self) -> str:
        """Its id there, as text."""
        return str(self.device_id)


class DevicePage(msgspec.Struct):
    """`data` of `POST /devices/search`."""

    content: list[RemoteDevice] = []


class Record(msgspec.Struct):
    """One report of the history; `ts` in ms."""

    ts: int
    properties: dict[str, Any] = {}


class HistoryPage(msgspec.Struct, rename="camel"):
    """`data` of `GET …/properties/history`."""

    records: list[Record] = msgspec.field(name="list", default_factory=list)
    next_page_key: str | None = None


class Task(msgspec.Struct, rename="camel"):
    """`data` of `GET /tasks/{taskId}`."""

    status: str
    err_msg: str | None = None
    outputs: dict[str, Any] | None = None


class DeviceTask(msgspec.Struct, rename="camel"):
    """The task of one device."""

    task_id: Id


class CreatedTasks(msgspec.Struct, rename="camel"):
    """`data` of `POST /tasks`."""

    device_task_relations: list[DeviceTask] = []
