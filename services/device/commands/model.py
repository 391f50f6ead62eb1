"""Commands, their states and their fields on the wire.

A task is a command as its application sees it: `PENDING` until it is sent, `SENT` until the
device answers with `SUCCESS` or `FAILED`, and `TIMEOUT` when the device does not answer.
NATS does not report whether a device received an MQTT message, so `SENT` proves no reception.
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
from libs.common.tsl import Tsl, list_hidden_texts, mask_text
from services.device.things.model import Thing

CommandKind = Literal["SET_PROPERTIES", "CALL_SERVICE", "SET_PROFILE"]

OPEN_STATES = ("PENDING", "SENT")
"""States of an open command, which has neither been answered nor failed nor expired."""


MAX_ERROR_LENGTH = 1000
"""Maximum characters of the stored error of a command."""
MAX_DOWNLINK_ID_LENGTH = 24
"""Maximum number of characters of our downlink ids."""


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why a command fails without an answer of its device."""

    code: str
    text: str


DEVICE_DELETED = FailureReason("device_deleted", "the device was deleted")
DEVICE_REMOVED = FailureReason("device_removed", "the device was removed from its application")
VALUES_NOT_RESTORED = FailureReason(
    "values_not_restored",
    "the backup that was restored holds no write-only values: send them again",
)
APPLICATION_DELETED = FailureReason(
    "application_deleted", "the application of the device was deleted"
)


class TaskType(StrEnum):
    """Type of a task."""

    CONFIG = "CONFIG"
    """A configuration task or a property update."""
    SERVICE = "SERVICE"
    """A service call."""


class CommandDownlink(msgspec.Struct, rename="camel", kw_only=True):
    """One downlink of a command: bytes that the codec encoded, and their delivery state."""

    port: int
    data: bytes
    keys: list[str] = []
    """Keys of the settings in the downlink; empty if it contains the whole command."""
    state: DownlinkState | None = None
    """The last state that the integration reported."""


class Command(msgspec.Struct, rename="camel", kw_only=True):
    """A command to a device, as it is stored.

    `payload` has no write-only values and may be shown. Only delivery reads `full_payload`.
    """

    id: int = msgspec.field(name="_id")
    thing_id: int
    sn: str
    tenant: str
    application_id: int | None
    """The application that requested the command, and alone finds its task; None for a user."""
    kind: CommandKind
    payload: dict[str, Any]
    full_payload: dict[str, Any] | None = msgspec.field(name="sealed", default=None)
    """The whole payload of an open command that has write-only values."""
    write_only: list[str] = []
    """Keys of the settings that are write-only or have a write-only member."""
    profile: DeviceProfile
    created_at: datetime
    expires_at: datetime
    user_id: int | None = None
    """The user who requested the command; None for an application."""
    hops: int = 0
    """Number of flows that led to the command (`libs.common.bus.hops`)."""
    carrier: str | None = None
    """The integration that delivers the command; None if no integration does."""
    coded: bool = False
    """Whether the product's codec encodes the command into downlinks."""
    downlinks: list[CommandDownlink] | None = None
    """Its downlinks; None until they are encoded."""
    confirmed_keys: list[str] = msgspec.field(name="shown", default_factory=list)
    """Keys of the properties that the device has reported with the requested value."""
    status: TaskStatus = "PENDING"
    finished_at: datetime | None = None
    outputs: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None
    """Code of the reason why the command ended; None if its status is the reason."""
    closed_by: str | None = None
    """The key of the reply that closed the command; None if no reply did."""
    pause_index: int = msgspec.field(name="attempts", default=0)
    """Index of the pause after the next delivery. Each delivery increments it, and it is 0 after
    the device connects."""
    provisions: bool = True
    """Whether success marks the device as provisioned; False if the device did not wait for a
    configuration when the command was created."""
    unpublished: bool = False
    """True until a process records that the first event is published."""

    @property
    def type(self) -> TaskType:
        """Return the type of the command's task."""
        return TaskType.SERVICE if self.kind == "CALL_SERVICE" else TaskType.CONFIG

    @property
    def is_queued(self) -> bool:
        """Return whether the command waits for its device to connect or to send an uplink."""
        return self.status == "PENDING" and (self.coded or self.carrier is None)

    @property
    def service_id(self) -> str:
        """Return the service that the command calls, or an empty string."""
        return str(self.payload.get("serviceId", ""))

    def to_wire(self) -> dict[str, Any]:
        """Return the command as its device reads it; `expiresAt` is in ms."""
        return {
            "commandId": self.id,
            "kind": self.kind,
            **(self.full_payload or self.payload),
            "expiresAt": to_ms(self.expires_at),
        }

    @property
    def has_all_values(self) -> bool:
        """Return whether no write-only value is missing. A backup contains no such values."""
        return self.full_payload is not None or not self.write_only

    def mask(self, text: str) -> str:
        """Return `text` without write-only values of this command."""
        if self.full_payload is None:
            return text
        return mask_text(text, list_hidden_texts(self.full_payload, self.payload))

    def encoder_input(self) -> dict[str, Any]:
        """Return the properties or settings that the codec encodes, or the service call.

        For a service call, the only key is the id of the service. The value is that of the input
        `value` if this is the only input. Otherwise it is all inputs, or true without inputs.
        """
        if self.kind != "CALL_SERVICE":
            return dict(settings_in(self.kind, self.full_payload or self.payload))
        inputs = self.payload["inputs"]
        return {self.service_id: inputs["value"] if list(inputs) == ["value"] else inputs or True}

    def readable_settings(self) -> list[tuple[str, Any]]:
        """Return the readable settings of the command as pairs of key and value."""
        return settings_in(self.kind, self.payload)

    def conceal_values(self, tsl: Tsl) -> "Command":
        """Return the command without values that `tsl` declares write-only."""
        payload, more = conceal_payload(self.kind, self.payload, tsl)
        if not more:
            return self
        write_only = list(dict.fromkeys([*self.write_only, *more]))
        full_payload = self.full_payload or self.payload
        return msgspec.structs.replace(
            self, payload=payload, write_only=write_only, full_payload=full_payload
        )

    def settings_with_hidden_as_none(self) -> list[tuple[str, Any]]:
        """Return all settings of the command; the value of a write-only one is None."""
        visible = self.readable_settings()
        visible_keys = {key for key, _ in visible}
        return visible + [(key, None) for key in self.write_only if key not in visible_keys]


def settings_in(kind: CommandKind, payload: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings of a payload as pairs of key and value; a service call has none."""
    if kind == "SET_PROPERTIES":
        return list(payload["properties"].items())
    if kind == "SET_PROFILE":
        return [(entry["key"], entry.get("value")) for entry in payload["values"]]
    return []


def conceal_payload(
    kind: CommandKind, payload: dict[str, Any], tsl: Tsl
) -> tuple[dict[str, Any], list[str]]:
    """Return a payload without write-only values, and the keys of the settings that lose them.

    The payload of a service call does not change.
    """
    if not tsl.conceals or kind == "CALL_SERVICE":
        return payload, []
    settings = dict(settings_in(kind, payload))
    visible = tsl.readable(settings)
    write_only = [key for key in settings if key not in visible or visible[key] != settings[key]]
    if not write_only:
        return payload, []
    if kind == "SET_PROPERTIES":
        return {"properties": visible}, write_only
    return {"values": [{"key": key, "value": value} for key, value in visible.items()]}, write_only


@dataclass(slots=True, frozen=True)
class CommandDraft:
    """A command that is checked but not stored."""

    thing: Thing
    kind: CommandKind
    payload: dict[str, Any]
    encoded: bytes
    """The whole payload as JSON."""
    full_payload: dict[str, Any] | None = None
    """The whole payload when `payload` lacks write-only values."""
    write_only: Sequence[str] = ()
    """Keys of the settings whose values `payload` lacks, entirely or in part."""
    given: dict[str, Any] | None = None
    """The requested properties if they include a STRUCT, which may be partial."""


def downlink_id(command_id: int, number: int) -> str:
    """Return the id by which integrations refer to a downlink of a command."""
    return f"{command_id}-{number}"


def parse_downlink_id(text: str) -> tuple[int, int] | None:
    """Return command id and downlink number of an id, or None when it is not ours."""
    command, dash, number = text.partition("-")
    if not dash or not (command.isdecimal() and number.isdecimal() and text.isascii()):
        return None
    return (int(command), int(number)) if len(text) <= MAX_DOWNLINK_ID_LENGTH else None


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


ShortText = Annotated[str, msgspec.Meta(max_length=128)]


class UpdateProperties(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `PATCH …/properties`."""

    properties: dict[str, Any]


class UpdatedProperties(msgspec.Struct):
    """Accepted properties, converted and rounded, without write-only values.

    A STRUCT has the members that were sent.
    """

    properties: dict[str, Any]


class CallService(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Body of `POST …/services/call`."""

    service_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    """Id of the service in the TSL, for example `reboot`."""
    inputs: dict[str, Any] | None = None


class ProfileValue(msgspec.Struct, forbid_unknown_fields=True):
    """A setting of a `PROFILE` configuration."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    """Key of the setting, for example `reporting_interval`."""
    value: Any = None
    """Value of the setting."""


class Config(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A configuration: type `TSL` has `properties`, type `PROFILE` has `values`."""

    version: ShortText | None = None
    """TSL version of the device; another version is rejected. The device does not receive it."""
    type: ShortText | None = None
    """Type of the task, `TSL` or `PROFILE`. A task of type `TSL` also accepts the TSL version."""
    properties: dict[str, Any] | None = None
    values: list[ProfileValue] | None = None
    """Settings of a profile."""


class CreateTasks(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Body of `POST /tasks`; text in `deviceIds` is separated by commas or semicolons."""

    type: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=32,
            extra_json_schema={"extra": {"enum": ["TSL", "PROFILE"]}},
        ),
    ]
    """Layout of `config`: `TSL` or `PROFILE`."""
    device_ids: list[NamedId] | str
    """Ids of the devices, for example `[1000017, 1000018]` or `"1000017,1000018"`."""
    config: Config


class DeviceTask(msgspec.Struct, rename="camel"):
    """The task of one device."""

    device_id: int
    task_id: int


class CreatedTasks(msgspec.Struct, rename="camel"):
    """Answer of `POST /tasks`."""

    device_task_relations: list[DeviceTask]
    """One task for each device."""


class Task(msgspec.Struct, rename="camel", omit_defaults=True):
    """A task and its state; times in ms."""

    task_id: int
    device_id: int
    type: TaskType
    """`CONFIG` for properties and profiles, `SERVICE` for a service call."""
    kind: CommandKind
    """Whether the task sets properties or a profile, or calls a service."""
    status: TaskStatus
    """`PENDING` (queued), `SENT`, `SUCCESS`, `FAILED` or `TIMEOUT` (expired)."""
    created_at: int
    expires_at: int
    err_code: str = ""
    """Why a task failed, for example `device_refused` or `device_did_not_answer`."""
    err_msg: str | None = None
    finished_at: int | None = None
    service_id: str | None = None
    """Id of the called service."""
    outputs: dict[str, Any] | None = None
    subcommand: list[Subcommand] = msgspec.field(default_factory=list)
    """Result of each setting."""


class DownlinkEncoder(Protocol):
    """Encodes commands for devices that receive bytes."""

    @abstractmethod
    async def check_can_encode(self, tenant: str, model: str) -> None:
        """Raise `CodecFailed` when the product has no codec that encodes."""

    @abstractmethod
    async def encode(self, command: Command, model: str) -> list[CommandDownlink]:
        """Return the downlinks of a command; raise `CodecFailed`."""
