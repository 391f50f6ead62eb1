"""Integrations on the bus: what they announce, and what they are asked.

An integration is a process, or a part of `management`, that brings devices in. It announces
its manifest every few seconds (`rpc.management.announce_integration.{id}`) and is gone when
it stops. It answers on `rpc.integration.{id}.{operation}`, in any language: the requests and
answers are the JSON of these structs; a refusal is a NATS micro service error whose code is
an HTTP status (400 names the parameter in its text).
"""

from typing import Annotated, Any, Literal

import msgspec

from libs.common.tsl import TslDocument, parse_document

GET_INTEGRATIONS = "rpc.management.get_integrations"
LEASE = 15.0
"""Seconds after its last announcement for which an integration counts as there."""
ANNOUNCE_EVERY = 5.0
"""Seconds between announcements."""

LOGIN_PREFIX = "integration."
"""What the NATS user of an external integration begins with; its id follows."""
BUILT_IN = (
    *("system", "direct", "simulator", "openapi-client"),
    *("chirpstack", "tts", "milesight", "webhook"),
)
"""Integrations that run inside `management`; nobody else may take their ids."""

NOT_SET = "entity_value_null"
"""Code of an `InvalidInput` by which an integration says that a setting or an input is missing."""

IntegrationId = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,62}$")]
"""One token of a subject and the beginning of entity keys."""
Tenant = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""One token of a subject."""
IdentifierText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_@#$\-/\[\]]+$")
]
"""What names a device within its integration; it is also its SN."""

Operation = Literal["add_device", "delete_device", "call", "updated", "command", "downlink"]


def operation_subject(integration: str, operation: Operation) -> str:
    """Where an integration is asked."""
    return f"rpc.integration.{integration}.{operation}"


def announce_subject(integration: str) -> str:
    """Where an integration announces itself."""
    return f"rpc.management.announce_integration.{integration}"


_NO_TSL = {"version": "v1.0", "properties": [], "events": [], "services": []}


class Manifest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What an integration is.

    `tsl` is a TSL document of the integration's own: its properties are its settings and
    states, its services what it can be asked to do. Two of the services may add and delete
    devices; the inputs of the first are the parameters that a device is added with.
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
    """Which input of it names the device, so that a list of devices can be sent once more."""
    delete_device_service: str | None = None
    hidden: bool = False
    """Left out of lists."""
    carries_commands: bool = False
    """Whether commands to its devices go to `rpc.integration.{id}.command` instead of to
    `thing.{sn}.down.command`."""
    carries_frames: bool = False
    """Whether its devices send and get bytes: commands are encoded by the codecs of their products
    and go to `rpc.integration.{id}.downlink` (`libs.common.contracts.frames`)."""

    def document(self, *, stored: bool = False) -> TslDocument:
        """`tsl` as a document, an empty one without it; raise `TslInvalid`.

        That of a manifest which was taken before is `stored`.
        """
        return parse_document(self.tsl or _NO_TSL, stored=stored)


class Integration(msgspec.Struct, frozen=True, rename="camel"):
    """A known integration and whether it is there now."""

    manifest: Manifest
    alive: bool


class GetIntegrations(msgspec.Struct):
    """`get_integrations`."""


class KnownIntegrations(msgspec.Struct):
    """Answer of `get_integrations`, hidden ones too."""

    integrations: list[Integration]


class AddDevice(msgspec.Struct, rename="camel", kw_only=True):
    """`add_device`: make ready for a device, and say what it is. Nothing is stored yet."""

    tenant: Tenant
    user_id: int
    name: str
    params: dict[str, Any]
    """Inputs of the add service by their ids, validated against the TSL."""


class NewDevice(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """Answer of `add_device`."""

    identifier: IdentifierText
    model: str = ""
    """A product of the tenant; empty lets the SN's prefix decide, else `generic`."""
    additional: dict[str, Any] = {}
    """Kept with the device, shown as `additional_data`."""
    tsl: dict[str, Any] | None = None
    """The product's TSL, to be imported when the tenant has no such product yet."""


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
    """`updated`: people changed properties of the integration; they are stored already.

    A property that its TSL lets people only write (`accessMode` W) is a secret: the platform
    neither stores nor shows it and says it here alone. The integration keeps it, and a refusal
    is what people are answered. What comes along with a secret is stored only when the
    integration has taken it all.
    """

    tenant: Tenant
    thing_id: int
    properties: dict[str, Any]


class DeviceCommand(msgspec.Struct, rename="camel", kw_only=True):
    """`command`: carry a command to a device, when the manifest says so.

    `command` is what `thing.{sn}.down.command` would carry. It may come again until the
    device's reply is told; the integration tells copies by its `commandId`.
    """

    device: DeviceRef
    command: dict[str, Any]


class TellReport(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.report.{integration}`: a device of the integration reports."""

    tenant: Tenant
    identifier: str
    properties: dict[str, Any]
    ts: int | None = None
    """ms; absent means now."""
    report_id: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    """Names the report: told again with it within two minutes, it is stored once."""


class TellEvent(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.event.{integration}`: an event of a device."""

    tenant: Tenant
    identifier: str
    event_id: str
    outputs: dict[str, Any] = {}
    ts: int | None = None


class TellReply(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.reply.{integration}`: what became of a command."""

    tenant: Tenant
    identifier: str
    command_id: int | str
    status: Literal["SUCCESS", "FAILED"]
    outputs: dict[str, Any] | None = None
    error: str | None = None


class TellOwnReport(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`rpc.device.own_report.{integration}`: properties of the integration itself changed."""

    tenant: Tenant
    properties: dict[str, Any]


class ListDevices(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.device.list_devices.{integration}`: the integration's devices of all tenants."""

    after: int = 0
    """Only ids above this one: the last of the page before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 500


class ListedDevices(msgspec.Struct):
    """Answer of `list_devices`, by id; shorter than `limit` means that it is the last page."""

    devices: list[DeviceRef]


class GetTsl(msgspec.Struct, rename="camel", kw_only=True):
    """`rpc.device.get_tsl.{integration}`: the TSL of a device of the integration."""

    tenant: Tenant
    identifier: str


class GotTsl(msgspec.Struct):
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
    """`rpc.device.put_device.{integration}`: bring a device in without being asked for it.

    For integrations that find devices themselves. One that is there already gets the name and
    `additional`; the answer is a `DeviceRef`. Of ours only: no login from outside may do it.
    """

    tenant: Tenant
    name: str
    device: NewDevice


TellOperation = Literal[
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


OUTSIDE_MAY_TELL: tuple[TellOperation, ...] = (
    "report",
    "event",
    "reply",
    "own_report",
    "list_devices",
    "get_tsl",
    "own_values",
)
"""What the login of an external integration may tell and ask."""


def login_of(integration: str) -> str:
    """The NATS user of an external integration; the dot keeps it apart from every SN."""
    return f"{LOGIN_PREFIX}{integration}"


def tell_subject(integration: str, operation: TellOperation) -> str:
    """Where an integration tells and asks `device`; its login may use only its own id."""
    return f"rpc.device.{operation}.{integration}"


class Acknowledged(msgspec.Struct):
    """An answer that says only that it is done."""

    done: bool = True
