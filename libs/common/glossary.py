r"""Fields and parameters that mean the same in every operation.

The API documents describe a field by the docstring under it or, without one, by this list, and
a parameter by its own description or this list. A name in camelCase is listed in snake_case. Fields
named `id`, `name`, `description` and `data` need no text, because the docstring of their struct is
enough.

access_key: Login name that belongs to the credential, for example `mqtt@default`.
access_mod: Access to a property: `R` (read), `W` (write) or `RW`. Absent for services and events.
access_secret: Password or secret of the credential.
access_token: Token to send as `Authorization: Bearer <token>` with each request.
address: Postal address, for example `12 Mill Lane, Bath`.
alarm_ids: Ids of alarms.
allowed_addresses: IP addresses and networks that may request tokens, for example
    `["192.0.2.7", "2001:db8::/32"]`. An empty list allows all addresses.
application: Application that the device belongs to.
application_id: Id of the application.
application_name: Name of the application.
auto_generate_password: Whether a new credential gets a generated secret.
autop_status: Older name of `rpsStatus`.
base64: Payload bytes in Base64, for example `A2cA1w==`.
canvas_id: Id of the canvas.
codec_version: Version of the codec, if the product has one.
color: CSS color, for example `#1f77b4`.
condition: Condition that raises the alarm, for example
    `{"type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 30}`.
config: Settings for the device.
connect_status: `ONLINE`, `OFFLINE` (the device has connected before) or `DISCONNECT` (it has never
    connected).
content: Entries of this page.
counter: LoRaWAN frame counter (FCnt) of the uplink.
cover_data: Picture of the dashboard: the path of a preset cover, for example
    `public/cover-purple.svg`, or the `resource_url` of an upload.
cover_type: `DEFAULT_IMAGE` for a preset cover, `RESOURCE` for an uploaded file.
created_at: Time of creation in milliseconds since 1970-01-01 UTC.
credentials_type: Purpose of the credential: `SMTP`, `MQTT` or `HTTP`.
current_version: TSL version that new devices get, for example `v1.0`.
credential_id: Id of the credential.
customized: Whether a user defined the entity. Entities of devices follow from the TSL.
dashboard_id: Id of the dashboard.
data_spec: Type, unit and bounds of the value.
data_storage: Whether the platform stores history for the device; true for a new device unless set.
decoder: Steps that decode an uplink, in their order. Empty: the entry points of the script.
dev_eui: Extended unique identifier (EUI) of a LoRaWAN device: 16 hexadecimal digits.
device_group: Group of the device.
device_id: Id of the device, which is returned when it is added.
device_id_list: Ids of the devices.
device_ids: Ids of devices.
device_name: Name of the device.
device_offline_timeout: Minutes without a message after which a device without a connection is
    `OFFLINE`. Absent: the platform's setting.
device_type: `COMMON`, or `GATEWAY` and `SUB_DEVICE` for a gateway and the devices behind it.
dry_run: Whether nodes with an effect outside the flow are only validated.
electricity: Charge of the battery in percent, 0 to 100.
email: Email address, which is also the login name.
encoder: Steps that encode a downlink, in their order. Empty: the entry points of the script.
end_timestamp: End of the period in milliseconds since 1970-01-01 UTC, inclusive.
ended_at: Time of the end in milliseconds since 1970-01-01 UTC. Absent while it is running.
entities: Entities that the caller may see.
entity_access_mod: Access to a property: `R` (read), `W` (write) or `RW`.
entity_created_at: Time of creation in milliseconds since 1970-01-01 UTC.
entity_id: Id of the entity.
entity_ids: Ids of entities.
entity_is_customized: Whether a user defined the entity.
entity_key: Key of the entity, `{integration}.device.{identifier}.{property}`. It never changes.
entity_name: Name of the entity.
entity_tags: Tags of the entity.
entity_type: `PROPERTY` (a value), `SERVICE` (can be called) or `EVENT` (is reported).
entity_updated_at: Time of the last change of the definition in milliseconds since 1970-01-01 UTC.
entity_value_attribute: Unit, bounds and permitted values by attribute, for example
    `{"unit": "°C", "min": -30, "max": 60}`.
entity_value_type: Type of the value: `STRING`, `LONG`, `DOUBLE`, `BOOLEAN`, `BINARY` or `OBJECT`.
error_code: Stable code of the error, for example `data_no_found`. Programs can depend on it.
error_message: Description of the error in English.
err_code: Stable code of the error, for example `data_not_found`. Programs can depend on it.
err_msg: Description of the error in English, with the field at fault.
event_id: Id of the event in the TSL, for example `low_battery`.
events: Whether the application may read the events of its tenant over NATS.
examples: Frames with the expected values, with which the codec is tested before it is stored.
expires_at: Expiry in milliseconds since 1970-01-01 UTC.
expires_in: Remaining lifetime of the access token in seconds.
faults: All faults. Empty without faults.
field: Path of the invalid value, for example `properties.temperature`.
file: Spreadsheet, XLSX or CSV. A CSV file is in UTF-8, UTF-16 or Windows-1252.
finished_at: Time of the result in milliseconds since 1970-01-01 UTC. Absent until then.
firmware_version: Firmware version that the device reported, for example `v1.3`.
flow_id: Id of the flow.
format: File format, `xlsx` or `csv`.
frame_days: Days for which frames are stored, so that they can be decoded again.
gateways: Gateways that received the frame, with signal strength and quality.
group_id: Id of the device group.
group_name: Name of the device group.
hardware_version: Hardware version that the device reported, for example `v2.0`.
hex: Payload bytes in hexadecimal, for example `036700d7`.
history_days: Days for which history is stored, at most the limits of the platform and the tenant.
icon: URL of the icon.
identifier: Identifier of the device in its integration, for example its SN or EUI.
imei: International mobile equipment identity: 15 digits.
import_id: Id of the import.
inputs: Inputs by name, without the id of the service, for example `{"duration": 30}`.
integration: Id of the integration, for example `direct`.
integration_id: Id of the integration.
integration_name: Name of the integration.
keyword: Part of the name, ignoring case.
last_update_time: Time of the newest report in milliseconds since 1970-01-01 UTC.
latitude: Degrees north of the equator (WGS 84), -90 to 90.
license_status: Always `VALID`.
list: Entries of this page.
location: Location of the device.
location_property: Property of type `STRUCT` that holds the location, with the members `latitude`
    and `longitude`.
log_id: Id of the run.
longitude: Degrees east of Greenwich (WGS 84), -180 to 180.
mac: MAC address of the Ethernet port that the device reported.
main_canvas_id: Id of the canvas that opens first.
menu_id: Id of the menu.
model: Model of the product, for example `WS302`.
next_key: Position of the next page, to be sent with the next request. Absent in a response: this
    is the last page. Absent in a request: the first page.
next_page_key: Position of the next page, to be sent as `pageKey`. Absent on the last page.
nickname: Name that other users see.
outputs: Output values by name, without the id of the service or event, for example
    `{"level": 2}`.
page_number: Number of the page. The first page is 1.
page_size: Maximum number of entries of a page.
port: LoRaWAN port (FPort) of the frame.
product: Model of the product.
profile_url: URL of the file with the settings of the device.
project: Project that the device belongs to, as free text.
properties: Values by property key, for example `{"temperature": 21.5}`.
property_key: Name of the value in messages, for example `config.interval`. Default: its id.
reason: Reason in English, and how to correct the fault.
refresh_token: Token that is exchanged for new tokens once.
refresh_token_expires_in: Remaining lifetime of the refresh token in seconds.
remark: Description of the flow.
resource_id: Id of the resource.
resource_type: Type of the resource.
request_id: Id of the request: 32 hexadecimal digits, also in the header `X-Request-Id`.
role_id: Id of the role.
rps_status: State of the remote provisioning service (RPS): `DISABLE` without provisioning,
    `WAITING` until the device confirms its first configuration, then `SUCCESS`.
rule_id: Id of the alarm rule.
scripts: JavaScript sources by name.
session_id: Id of the session.
severity: Severity of the alarm.
sn: Serial number (SN) of the device, for example `6445D0123456`.
sn_prefixes: Beginnings of serial numbers, for example `["6445"]`. A new device whose SN has one of
    them gets this product.
sorts: Sort criteria. The first one has precedence.
start_time: Start in milliseconds since 1970-01-01 UTC.
start_timestamp: Start of the period in milliseconds since 1970-01-01 UTC, inclusive.
tag: Tags of the device, for example `["roof", "north"]`.
tag_id: Id of the tag.
tags: Tags of the device, for example `["roof", "north"]`.
task_id: Id of the task.
tenant: Id of the tenant, for example `default`.
tenant_id: Id of the tenant.
time_cost: Duration in milliseconds.
time_zone: IANA name of the time zone, for example `Europe/Berlin`.
timezone: IANA name of the time zone, for example `Europe/Berlin`.
timestamp: Time of the value in milliseconds since 1970-01-01 UTC.
token_type: Always `Bearer`.
total: Number of entries on all pages.
ts: Time in milliseconds since 1970-01-01 UTC.
tsl: Thing specification (TSL): the properties, events and services of the devices.
tsl_version: Version of the TSL that the device follows, for example `v1.0`.
updated_at: Time of the last change in milliseconds since 1970-01-01 UTC.
user_email: Email address of the user.
user_id: Id of the user.
user_nickname: Nickname of the user.
value_attribute: Unit, bounds and permitted values by attribute, for example
    `{"unit": "°C", "min": -30, "max": 60}`.
value_type: Type of the value: `STRING`, `LONG`, `DOUBLE`, `BOOLEAN`, `BINARY` or `OBJECT`.
versions: All stored versions of the TSL.
widgets: Widgets of the canvas.
wlan_mac: MAC address of the wireless interface that the device reported.
"""

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

_DESCRIPTION_BY_NAME = {
    name: " ".join(text.split())
    for name, text in re.findall(r"^(\w+): (.+(?:\n    .+)*)", __doc__ or "", re.MULTILINE)
}
"""Descriptions of fields and parameters by name in snake_case."""


def describe_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the descriptions of a struct's fields by their names in JSON."""
    texts = read_field_docstrings(kind)
    names = (field.encode_name for field in msgspec.structs.fields(kind))
    descriptions = {name: texts.get(name) or find_description(name) for name in names}
    return {name: text for name, text in descriptions.items() if text}


def read_field_docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings under a struct's fields by the fields' names in JSON."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[: kind.__mro__.index(msgspec.Struct)]):
        texts |= _read_field_docstrings(base.__module__)[base.__name__]
    fields = msgspec.structs.fields(kind)
    return {field.encode_name: texts[field.name] for field in fields if field.name in texts}


def add_descriptions(schemas: dict[str, Any], kinds: Iterable[Any]) -> None:
    """Add descriptions of fields to the `schemas` (by struct name) of the structs in `kinds`."""
    for kind in kinds:
        if isinstance(kind, type) and kind.__name__ in schemas:
            for name, text in describe_fields(kind).items():
                schemas[kind.__name__]["properties"][name]["description"] = text


def find_description(name: str) -> str | None:
    """Return the description of a field or parameter in this list, by its name in JSON."""
    return _DESCRIPTION_BY_NAME.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


@cache
def _read_field_docstrings(module: str) -> defaultdict[str, dict[str, str]]:
    """Return the docstrings under the attributes of a module's classes, by class."""
    texts: defaultdict[str, dict[str, str]] = defaultdict(dict)
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    for node in (statement for statement in body if isinstance(statement, ast.ClassDef)):
        for pair in pairwise(node.body):
            match pair:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[node.name][name] = inspect.cleandoc(text)
    return texts
