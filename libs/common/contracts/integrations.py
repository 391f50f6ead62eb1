"""Integrations on the bus: their announcements and their operations.

An integration is a process, or a part of `management`, that connects devices. It announces its
manifest every few seconds (`rpc.management.announce_integration.{id}`) and counts as stopped
without announcements. It answers on `rpc.integration.{id}.{operation}` and may be written in any
language. Requests and answers are JSON of these structs; an error is a NATS micro service error
whose code is an HTTP status (the text of a 400 names the parameter).
"""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.tsl import TslDocument, parse_document

GET_INTEGRATIONS = "rpc.management.get_integrations"
ANNOUNCEMENT_LIFETIME_SECONDS = 15.0
"""Seconds after its last announcement for which an integration counts as running."""
ANNOUNCE_INTERVAL_SECONDS = 5.0
"""Seconds between announcements."""

INTEGRATION_USER_PREFIX = "integration."
"""Prefix of the NATS user of an external integration, before its id."""
BUILT_IN_IDS = (
    *("system", "direct", "simulator", "openapi-client"),
    *("chirpstack", "tts", "milesight", "webhook"),
)
"""Integrations that run inside `management`; external ones may not use their ids."""

MISSING_SETTING_CODE = "entity_value_null"
"""Code of the `InvalidInput` with which an integration reports a missing setting or input."""

IntegrationId = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,62}$")]
"""A token of a subject and the prefix of entity keys."""
Tenant = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""A token of a subject."""
IdentifierText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_@#$\-/\[\]]+$")
]
"""Identifies a device within its integration, and is also the device's SN."""

IntegrationOperation = Literal[
    "add_device", "delete_device", "call", "updated", "command", "downlink"
]


def operation_subject(integration: str, operation: IntegrationOperation) -> str:
    """Return the subject of an operation of an integration."""
    return f"rpc.integration.{integration}.{operation}"


def announce_subject(integration: str) -> str:
    """Return the subject on which an integration announces itself."""
    return f"rpc.management.announce_integration.{integration}"


_NO_TSL = {"version": "v1.0", "properties": [], "events": [], "services": []}


class Manifest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The description of an integration.

    `tsl` is the TSL document of the integration itself: its properties are settings and states, its
    services are the operations that users can call. Two of the services may add and delete devices;
    the inputs of the first are the parameters of a new device.
    """

    id: IntegrationId
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=127)]
    description: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    icon: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    """A path under `/public/` or an `https:` address."""
    version: Annotated[str, msgspec.Meta(max_length=64)] = "1.0.0"
    tsl: dict[str, Any] = {}
    add_device_service: str | None = None
    """Id of the service in `tsl` that adds devices."""
    identifier_input: str | None = None
    """Id of the input of this service that contains the device's identifier. With it, an import
    recognizes devices that already exist."""
    delete_device_service: str | None = None
    hidden: bool = False
    """Omitted from lists."""
    carries_commands: bool = False
    """Whether commands to its devices go to `rpc.integration.{id}.command` instead of
    `thing.{sn}.down.command`."""
    carries_frames: bool = False
    """Whether its devices send and receive bytes: the codecs of their products encode commands,
    which go to `rpc.integration.{id}.downlink` (`libs.common.contracts.frames`)."""

    def document(self, *, stored: bool = False) -> TslDocument:
        """Return `tsl` as a document, empty without it; raise `TslInvalid`.

        `stored` applies the rules for a document that was accepted before.
        """
        return parse_document(self.tsl or _NO_TSL, stored=stored)


class Integration(msgspec.Struct, frozen=True, rename="camel"):
    """A known integration, and whether it is running."""

    manifest: Manifest
    alive: bool


class GetIntegrations(msgspec.Struct):
    """`get_integrations`: list all known integrations."""


class KnownIntegrations(msgspec.Struct):
    """Answer of `get_integrations`, including hidden ones."""

    integrations: list[Integration]


class AddDevice(msgspec.Struct, rename="camel", kw_only=True):
    """`add_device`: prepare a new device and return its data. It is not stored yet."""

    tenant: Tenant
    user_id: int
    name: str
    params: dict[str, Any]
    """Inputs of the add service by id, validated against the TSL."""


class NewDevice(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Answer of `add_device`."""

    identifier: IdentifierText
    model: str = ""
    """A product of the tenant; if empty, the SN's prefix decides, else `generic`."""
    additional: dict[str, Any] = {}
    """Stored with the device, shown as `additional_data`."""
    tsl: dict[str, Any] | None = None
    """The product's TSL, which is imported if the tenant has no such product yet."""


class DeviceRef(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A device of the integration."""

    tenant: Tenant
    device_id: int
    identifier: str
    name: str = ""
    model: str = ""
    additional: dict[str, Any] = {}


class CallService(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`call`: a service of the integration itself, with inputs validated against its TSL."""

    tenant: Tenant
    thing_id: int
    service_id: str
    inputs: dict[str, Any] = {}


class ServiceResult(msgspec.Struct, omit_defaults=True):
    """Answer of `call`."""

    outputs: dict[str, Any] = {}


class PropertiesUpdated(msgspec.Struct, rename="camel", kw_only=True):
    """`updated`: users changed properties of the integration; they are stored afterwards.

    A write-only property (`accessMode` W) is a secret: the platform neither stores nor shows it,
    and sends it only here. The integration stores it, and users see the errors that the integration
    answers. Properties are stored only if the integration accepts them all. If none is a secret,
    they are also stored while the integration is not running.
    """

    tenant: Tenant
    thing_id: int
    properties: dict[str, Any]


class DeviceCommand(msgspec.Struct, rename="camel", kw_only=True):
    """`command`: send a command to a device, if the manifest has `carriesCommands`.

    `command` has the content of `thing.{sn}.down.command`. The service `device` repeats the command
    until it gets the reply; the integration recognizes duplicates by `commandId`.
    """

    device: DeviceRef
    command: dict[str, Any]


class SendReport(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.report.{integration}`: a report of a device of the integration."""

    tenant: Tenant
    identifier: str
    properties: dict[str, Any]
    ts: int | None = None
    """ms; absent means now."""
    report_id: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    """Identifies the report: duplicates within two minutes are stored once."""


class SendEvent(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.event.{integration}`: an event of a device."""

    tenant: Tenant
    identifier: str
    event_id: str
    outputs: dict[str, Any] = {}
    ts: int | None = None


class SendReply(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.reply.{integration}`: the result of a command."""

    tenant: Tenant
    identifier: str
    command_id: int | str
    status: Literal["SUCCESS", "FAILED"]
    outputs: dict[str, Any] | None = None
    error: str | None = None


class SendOwnReport(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.own_report.{integration}`: values of the integration's own properties."""

    tenant: Tenant
    properties: dict[str, Any]


class ListDevices(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.device.list_devices.{integration}`: the integration's devices of all tenants."""

    after: int = 0
    """Id of the last device of the previous page; only devices with greater ids are listed."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 500


class ListedDevices(msgspec.Struct):
    """Answer of `list_devices`, sorted by id; fewer devices than `limit` mean the last page."""

    devices: list[DeviceRef]


class GetTsl(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.device.get_tsl.{integration}`: the TSL of a device of the integration."""

    tenant: Tenant
    identifier: str


class DeviceTsl(msgspec.Struct):
    """Answer of `get_tsl`: the TSL document."""

    tsl: dict[str, Any]


class GetOwnValues(msgspec.Struct):
    """`rpc.device.own_values.{integration}`: latest values of the integration itself."""

    tenant: Tenant


class OwnValues(msgspec.Struct, rename="camel"):
    """Answer of `own_values`; `thing_id` is the integration's thing in this tenant."""

    thing_id: int
    properties: dict[str, Any]


class PutDevice(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.device.put_device.{integration}`: add or update a device that was discovered.

    An existing device gets the name and `additional`. The answer is a `DeviceRef`. Only built-in
    integrations may call it.
    """

    tenant: Tenant
    name: str
    device: NewDevice


DeviceOperation = Literal[
    "report",
    "event",
    "reply",
    "frames",
    "downlink",
    "link",
    "own_report",
    "list_devices",
    "get_tsl",
    "own_values",
    "put_device",
]


EXTERNAL_OPERATIONS: tuple[DeviceOperation, ...] = (
    "report",
    "event",
    "reply",
    "own_report",
    "list_devices",
    "get_tsl",
    "own_values",
)
"""Operations that an external integration may call."""


def integration_user(integration: str) -> str:
    """Return the NATS user of an external integration; the dot distinguishes it from any SN."""
    return f"{INTEGRATION_USER_PREFIX}{integration}"


def device_subject(integration: str, operation: DeviceOperation) -> str:
    """Return the subject on which an integration calls an operation of `device`.

    The subject ends with the id, so that an integration can call it only for itself.
    """
    return f"rpc.device.{operation}.{integration}"


class Acknowledged(msgspec.Struct):
    """An answer without content."""

    done: bool = True
