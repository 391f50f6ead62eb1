"""Commands, and their fields on the wire.

A task is a command seen by the application. It is `PENDING` until it is first sent,
`SENT` until the device says `SUCCESS` or `FAILED`, and `TIMEOUT` when it never does.
MQTT from NATS is QoS 0, so sending proves nothing.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.events import DeviceProfile, Subcommand, TaskStatus
from libs.common.contracts.frames import DownlinkState
from libs.common.http.ids import NamedId
from libs.common.tsl import Tsl, mask_text, texts_beyond
from services.device.things.model import Thing

Kind = Literal["SET_PROPERTIES", "CALL_SERVICE", "SET_PROFILE"]

OPEN = ("PENDING", "SENT")
"""States of a command that still waits for its device."""


LONGEST_ID = 24
"""Characters of the id of a downlink that may be one of ours."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why commands end before their device answers, as their tasks tell it."""

    code: str
    text: str


DELETED = Reason("device_deleted", "the device was deleted")
REMOVED = Reason("device_removed", "the device was removed from its application")
NOT_RESTORED = Reason(
    "values_not_restored",
    "the backup that was restored holds no write-only values: send them again",
)
ORPHANED = Reason("application_deleted", "the application of the device was deleted")


class TaskType(StrEnum):
    """What the application asked for."""

    CONFIG = "CONFIG"
    """A configuration task or a property update."""
    SERVICE = "SERVICE"
    """A service call."""


class SentDownlink(msgspec.Struct, rename="camel", kw_only=True):
    """Bytes that a codec made of a command, and what became of them."""

    port: int
    data: bytes
    keys: list[str] = []
    """What it sets, where it is not all of the command."""
    state: DownlinkState | None = None
    """What its integration told of it last."""


class Command(msgspec.Struct, rename="camel", kw_only=True):
    """One command to one device, as it is stored.

    `payload` is its kind's part of the wire without write-only values, which is what everybody
    may read. Only delivery reads `sealed`.
    """

    id: int = msgspec.field(name="_id")
    thing_id: int
    sn: str
    tenant: str
    application_id: int | None
    """Who asked for it, when that was an application: only its author finds it as a task."""
    kind: Kind
    payload: dict[str, Any]
    sealed: dict[str, Any] | None = None
    """The whole payload while the command is open, where a part of it is write-only."""
    write_only: list[str] = []
    """The settings that are write-only, or have a member that is."""
    profile: DeviceProfile
    created_at: datetime
    expires_at: datetime
    user_id: int | None = None
    """Who asked for it, when that was a user."""
    hops: int = 0
    """How many flows have led to it (`libs.common.bus.hops`)."""
    carrier: str | None = None
    """The integration that carries it to the device; None when it goes there directly."""
    coded: bool = False
    """Whether its integration carries bytes, which the codec of its product makes of it."""
    downlinks: list[SentDownlink] | None = None
    """These bytes; None until they are made."""
    shown: list[str] = []
    """The properties whose values the device has shown since."""
    status: TaskStatus = "PENDING"
    finished_at: datetime | None = None
    outputs: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None
    """Why it ended, where its status does not say it."""
    closed_by: str | None = None
    """The key of the reply that closed it."""
    attempts: int = 0

    @property
    def type(self) -> TaskType:
        """The type that the task shows."""
        return TaskType.SERVICE if self.kind == "CALL_SERVICE" else TaskType.CONFIG

    @property
    def queued(self) -> bool:
        """Whether it waits for its device to connect, or to be heard by a network server."""
        return self.status == "PENDING" and (self.coded or self.carrier is None)

    @property
    def service_id(self) -> str:
        """The service that a `CALL_SERVICE` calls."""
        return str(self.payload.get("serviceId", ""))

    def wire(self) -> dict[str, Any]:
        """The command as the device reads it; `expiresAt` in ms."""
        return {
            "commandId": self.id,
            "kind": self.kind,
            **(self.sealed or self.payload),
            "expiresAt": to_ms(self.expires_at),
        }

    @property
    def is_deliverable(self) -> bool:
        """Whether its write-only values are there; a backup has none."""
        return self.sealed is not None or not self.write_only

    def masked(self, text: str) -> str:
        """Return a text of a device, a codec or an integration unless it has a secret of ours."""
        if self.sealed is None:
            return text
        return mask_text(text, texts_beyond(self.sealed, self.payload))

    def values(self) -> dict[str, Any]:
        """What its codec makes bytes of: properties, settings, or a service with its inputs.

        A service that takes one `value` has it itself, one that takes nothing has true.
        """
        if self.kind != "CALL_SERVICE":
            return dict(settings_of(self.kind, self.sealed or self.payload))
        inputs = self.payload["inputs"]
        return {self.service_id: inputs["value"] if list(inputs) == ["value"] else inputs or True}

    def settings(self) -> list[tuple[str, Any]]:
        """What is set, key by key, without write-only values."""
        return settings_of(self.kind, self.payload)

    def readable_by(self, tsl: Tsl) -> "Command":
        """Return the command as it may be read under the TSL of today; delivery still has all."""
        payload, more = concealed(self.kind, self.payload, tsl)
        if not more:
            return self
        write_only = list(dict.fromkeys([*self.write_only, *more]))
        sealed = self.sealed or self.payload
        return msgspec.structs.replace(self, payload=payload, write_only=write_only, sealed=sealed)

    def shown_settings(self) -> list[tuple[str, Any]]:
        """What is set, key by key; None is the value of one of which nothing can be read."""
        shown = self.settings()
        known = {key for key, _ in shown}
        return shown + [(key, None) for key in self.write_only if key not in known]


def settings_of(kind: Kind, payload: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a payload sets, key by key."""
    if kind == "SET_PROPERTIES":
        return list(payload["properties"].items())
    if kind == "SET_PROFILE":
        return [(entry["key"], entry.get("value")) for entry in payload["values"]]
    return []


def concealed(kind: Kind, payload: dict[str, Any], tsl: Tsl) -> tuple[dict[str, Any], list[str]]:
    """Return a payload without write-only values, and the settings that have some."""
    if not tsl.conceals or kind == "CALL_SERVICE":
        return payload, []
    settings = dict(settings_of(kind, payload))
    shown = tsl.readable(settings)
    write_only = [key for key in settings if key not in shown or shown[key] != settings[key]]
    if not write_only:
        return payload, []
    if kind == "SET_PROPERTIES":
        return {"properties": shown}, write_only
    return {"values": [{"key": key, "value": value} for key, value in shown.items()]}, write_only


@dataclass(slots=True, frozen=True)
class Draft:
    """A command that has been checked and not yet written."""

    thing: Thing
    kind: Kind
    payload: dict[str, Any]
    encoded: bytes
    """The whole payload as JSON."""
    sealed: dict[str, Any] | None = None
    """The whole payload, where that of the draft lacks write-only values."""
    write_only: Sequence[str] = ()
    """The settings that lack some."""
    given: dict[str, Any] | None = None
    """The properties as asked for, when a STRUCT among them was completed from others."""


def downlink_id(command_id: int, number: int) -> str:
    """How integrations know the `number`th downlink of a command."""
    return f"{command_id}-{number}"


def read_downlink_id(text: str) -> tuple[int, int] | None:
    """The command and the number; None when it names no command's."""
    command, dash, number = text.partition("-")
    if not dash or not (command.isdecimal() and number.isdecimal() and text.isascii()):
        return None
    return (int(command), int(number)) if len(text) <= LONGEST_ID else None


def now() -> datetime:
    """The time, aware, in UTC."""
    return datetime.now(UTC)


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


class DownlinkEncoder(Protocol):
    """Makes bytes of commands for devices that take no other."""

    @abstractmethod
    async def check(self, tenant: str, model: str) -> None:
        """Raise `CodecFailed` for a product without a codec that encodes."""

    @abstractmethod
    async def encode(self, command: Command, model: str) -> list[SentDownlink]:
        """Return the bytes of a command for its device; raise `CodecFailed`."""
