"""Rewriting of ids and sealed secrets when documents move between installations.

Every installation counts ids from the same first number, so a tenant's ids collide with others.
Each sequence is shifted as a whole: an id becomes `old + shift`, in a range that the target's
counter has reserved. Dashboards and flow designs are formatted by clients; there ids are recognized
by member names, and entity ids by their number range.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.ids import FIRST_ID
from libs.common.things import MEMBERS_PER_THING
from services.device.telemetry.partitions import KEY_FORMAT
from services.workflow.credentials.store import seal_context
from services.workflow.nodes.base import NodeRegistry
from services.workflow.nodes.wiring import create_registry
from services.workflow.notifications.service import replace_secret, webhook_seal_context
from services.workflow.notifications.store import Notifications
from services.workflow.vault import map_marks_to_contexts

Document = dict[str, Any]

_THING_SEQUENCE, _FLOW_SEQUENCE = "device.things", "workflow.flows"
_DEVICE_ID_BYTES = 8
"""Bytes of the device id at the start of a history key."""
_FLOW_SERVICE_PATTERN = re.compile(r"\bsystem\.integration\.(\d{7,15})(?![\w-])")
"""Key of the service that runs a flow; the group is the flow's id."""
_ID_PATTERN = r"[1-9][0-9]{6,15}"
_SEQUENCE_BY_MEMBER_PATTERN = (
    (re.compile(r"device_?id$", re.IGNORECASE), "device.things"),
    (re.compile(r"group_?id$", re.IGNORECASE), "device.device_groups"),
)
"""Pairs of a pattern for names of JSON members and the id sequence of the members' values."""
_DEVICES_MEMBER = "devices"
"""JSON member of a widget: a list of devices, objects with the member `id`."""
_MAX_ID_DIGITS = 16
"""Maximum number of digits of an id."""
_SEQUENCE_BY_GRANT_TYPE = {
    "DASHBOARD": "management.dashboards",
    "WORKFLOW": _FLOW_SEQUENCE,
    "DEVICE": _THING_SEQUENCE,
    "DEVICE_GROUP": "device.device_groups",
}
_SEQUENCE_BY_ACTOR_KIND = {"user": "auth.users", "application": "auth.applications"}
_SEQUENCE_BY_AUDITED_TYPE = {
    "user": "auth.users",
    "role": "auth.roles",
    "menu": "auth.menus",
    "application": "auth.applications",
    "session": "auth.users",
}
"""Id sequence of audited objects by their type; a session has the id of its user."""


@dataclass(frozen=True)
class Relocation:
    """Id shifts and seals of a tenant's move from a source to a target installation."""

    shifts: Mapping[str, int]
    """Number to add to the ids of each sequence (`{service}.{name}`)."""
    ends: Mapping[str, int]
    """Next unused id of each sequence at the source."""
    tenant: str
    account: tuple[Seal, Seal]
    """The seals of integration secrets: the seal of the source, and that of the target."""
    flows: tuple[Seal, Seal]
    """The seals of flow secrets: the seal of the source, and that of the target."""
    contexts: dict[str, str] = field(default_factory=dict)
    """Context with which each flow secret is sealed, by the mark that replaces it in designs."""

    def shift_id(self, sequence: str, old: int) -> int:
        """Return the id at the target for an id at the source."""
        return old + self.shifts.get(sequence, 0)

    def is_source_id(self, sequence: str, value: int) -> bool:
        """Return whether a number can be an id of the sequence at the source."""
        return FIRST_ID <= value < self.ends.get(sequence, FIRST_ID)

    def shift_entity_id(self, value: int) -> int:
        """Return the entity id at the target, or `value` if it is not an entity id."""
        if not self.is_source_id(_THING_SEQUENCE, value // MEMBERS_PER_THING):
            return value
        return value + self.shifts.get(_THING_SEQUENCE, 0) * MEMBERS_PER_THING


def shift_ids(document: Document, sequence_by_path: Mapping[str, str], move: Relocation) -> None:
    """Shift the ids at these paths in a document, each by the shift of its sequence.

    The path `a.b` applies to each element if `a` is a list.
    """
    for path, sequence in sequence_by_path.items():
        _shift_ids_at_path(document, path.split("."), sequence, move)


def _shift_ids_at_path(value: Any, path: list[str], sequence: str, move: Relocation) -> None:
    if isinstance(value, list):
        for element in value:
            _shift_ids_at_path(element, path, sequence, move)
        return
    if not isinstance(value, dict) or value.get(path[0]) is None:
        return
    if len(path) > 1:
        _shift_ids_at_path(value[path[0]], path[1:], sequence, move)
    elif isinstance(value[path[0]], list):
        value[path[0]] = [move.shift_id(sequence, old) for old in value[path[0]]]
    else:
        value[path[0]] = move.shift_id(sequence, value[path[0]])


def rewrite_custom_entity(document: Document, move: Relocation) -> None:
    """Set the identifier of a flow's entity to the (already shifted) flow id."""
    if document.get("flow") is not None:
        document["identifier"] = str(document["flow"])


def rewrite_alarm_state(document: Document, move: Relocation) -> None:
    """Rebuild the key from the (already shifted) rule and device ids."""
    document["_id"] = f"{document['rule']}.{document['generation']}.{document['device']}"


def rewrite_alarm(document: Document, move: Relocation) -> None:
    """Rewrite the key of the alarm state, and user ids in `claimedBy` and `clearedBy`."""
    if "state" in document:
        _, generation, _ = document["state"].split(".")
        document["state"] = f"{document['rule']}.{generation}.{document['device']}"
    for name in ("claimedBy", "clearedBy"):
        if str(document.get(name)).isdecimal():
            document[name] = str(move.shift_id("auth.users", int(document[name])))


def rewrite_history_key(document: Document, move: Relocation) -> None:
    """Rewrite the device id at the start of the document's history key."""
    thing, at, sequence = KEY_FORMAT.unpack(document["_id"])
    document["_id"] = KEY_FORMAT.pack(move.shift_id(_THING_SEQUENCE, thing), at, sequence)


def rewrite_frame(document: Document, move: Relocation) -> None:
    """Rewrite the device id in key, identity and past readings' keys of a frame."""
    rewrite_history_key(document, move)
    thing = document["_id"][:_DEVICE_ID_BYTES]
    for name in ("i", "h"):
        if name in document:
            keys = document[name]
            several = isinstance(keys, list)
            made = [thing + bytes(key)[_DEVICE_ID_BYTES:] for key in (keys if several else [keys])]
            document[name] = made if several else made[0]


def rewrite_tagged_entity(document: Document, move: Relocation) -> None:
    """Shift the entity id that is the key of the document."""
    document["_id"] = move.shift_entity_id(document["_id"])


def rewrite_canvas(document: Document, move: Relocation) -> None:
    """Rewrite the ids in widgets, whose JSON clients format, and in `entityIds`."""
    for widget in document["widgets"]:
        widget["data"] = _rewrite_json(widget["data"], move).decode()
    document["entityIds"] = [move.shift_entity_id(old) for old in document.get("entityIds", ())]


def rewrite_attached_canvas(document: Document, move: Relocation) -> None:
    """Rewrite a canvas and the id of its device or dashboard."""
    rewrite_canvas(document, move)
    sequence = (
        _THING_SEQUENCE
        if document["attachType"] == "DEVICE"
        else _SEQUENCE_BY_GRANT_TYPE["DASHBOARD"]
    )
    document["attachId"] = move.shift_id(sequence, document["attachId"])


def rewrite_design(document: Document, move: Relocation) -> None:
    """Rewrite the ids in a flow design; add seal contexts to `move.contexts`."""
    collect_seal_contexts(document, move)
    document["design"] = _rewrite_json(document["design"], move).decode()


def collect_seal_contexts(document: Document, move: Relocation) -> None:
    """Add the seal contexts of the secrets in a flow design to `move.contexts`."""
    move.contexts.update(map_marks_to_contexts(move.tenant, document["design"], NODE_REGISTRY))


def rewrite_deployed_flow(document: Document, move: Relocation) -> None:
    """Rewrite ids in the flow (`deployed` or `flow`) of a deployment, hook or timer."""
    for name in ("deployed", "flow"):
        if name in document:
            document[name] = _rewrite_json(document[name], move, flow=True)


def rewrite_flow_secret(document: Document, move: Relocation) -> None:
    """Seal a secret with the target's key; skip one that no design refers to."""
    context = move.contexts.get(document["_id"])
    if context is not None:
        document["sealed"] = _reseal(document["sealed"], context, move.flows)


def rewrite_openapi_account(document: Document, move: Relocation) -> None:
    """Seal the secret of `openapi-client` with the target's key."""
    if document.get("secret"):
        document["secret"] = _reseal(document["secret"], move.tenant, move.account)


def rewrite_network_server(document: Document, move: Relocation) -> None:
    """Seal the credentials of a tenant's network server with the target's key."""
    for secret in document.get("secrets", {}).values():
        secret["sealed"] = _reseal(secret["sealed"], move.tenant, move.account)


def rewrite_credential(document: Document, move: Relocation) -> None:
    """Seal a flow credential with the target's key."""
    document["sealed"] = _reseal(document["sealed"], seal_context(document), move.flows)


def rewrite_notification_settings(document: Document, move: Relocation) -> None:
    """Seal the secret of a user's webhook with the target's key."""
    settings = msgspec.convert(document["settings"], Notifications)
    if settings.webhook is not None and settings.webhook.secret:
        context = webhook_seal_context(move.tenant, settings.webhook)
        again = _reseal(settings.webhook.secret, context, move.flows)
        settings = replace_secret(settings, again)
    document["settings"] = msgspec.to_builtins(settings)


RESEALING_REWRITES = (
    rewrite_flow_secret,
    rewrite_credential,
    rewrite_openapi_account,
    rewrite_network_server,
    rewrite_notification_settings,
)
"""Rewrites that seal secrets again."""


def rewrite_grant(document: Document, move: Relocation) -> None:
    """Rewrite the id of the granted resource."""
    if document["type"] == "ENTITY":
        document["id"] = move.shift_entity_id(document["id"])
    elif document["type"] in _SEQUENCE_BY_GRANT_TYPE:
        document["id"] = move.shift_id(_SEQUENCE_BY_GRANT_TYPE[document["type"]], document["id"])


def rewrite_audit_entry(document: Document, move: Relocation) -> None:
    """Rewrite actor and object of an audit entry; ids are strings there."""
    for part, kind, sequences in (
        ("actor", "kind", _SEQUENCE_BY_ACTOR_KIND),
        ("object", "type", _SEQUENCE_BY_AUDITED_TYPE),
    ):
        reference = document.get(part, {})
        sequence = sequences.get(reference.get(kind, ""))
        if sequence and re.fullmatch(_ID_PATTERN, reference.get("id", "")):  # the operator has id 0
            reference["id"] = str(move.shift_id(sequence, int(reference["id"])))


def _reseal(sealed: str, context: str, seals: tuple[Seal, Seal]) -> str:
    before, after = seals
    try:
        return after.seal(before.open(sealed, context), context)
    except SealBroken:
        return sealed  # unreadable at the source as well


def _rewrite_json(text: str | bytes, move: Relocation, *, flow: bool = False) -> bytes:
    """Return JSON with rewritten ids; return a draft that is not JSON unchanged."""
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.encode() if isinstance(text, str) else text
    if flow:
        content["flowId"] = move.shift_id(_FLOW_SEQUENCE, content["flowId"])
    return msgspec.json.encode(_rewrite_value(content, move))


def _rewrite_value(value: Any, move: Relocation) -> Any:
    if isinstance(value, dict):
        return {name: _rewrite_member(name, member, move) for name, member in value.items()}
    if isinstance(value, list):
        return [_rewrite_value(element, move) for element in value]
    if isinstance(value, str):
        return _rewrite_text(value, move)
    return move.shift_entity_id(value) if type(value) is int else value


def _rewrite_text(value: str, move: Relocation) -> str:
    if value.isascii() and value.isdigit() and len(value) <= _MAX_ID_DIGITS:
        return str(move.shift_entity_id(int(value)))
    return _FLOW_SERVICE_PATTERN.sub(lambda found: _rewrite_flow_service(found, move), value)


def _rewrite_member(name: str, value: Any, move: Relocation) -> Any:
    if name == _DEVICES_MEMBER and isinstance(value, list):
        return [_rewrite_listed_device(device, move) for device in value]
    for pattern, sequence in _SEQUENCE_BY_MEMBER_PATTERN:
        if pattern.search(name) and re.fullmatch(_ID_PATTERN, str(value)):
            is_id = move.is_source_id(sequence, int(value))
            return type(value)(move.shift_id(sequence, int(value))) if is_id else value
    return _rewrite_value(value, move)


def _rewrite_listed_device(value: Any, move: Relocation) -> Any:
    if not isinstance(value, dict) or "id" not in value:
        return _rewrite_value(value, move)
    device = _rewrite_member("device_id", value["id"], move)
    return {**_rewrite_value(value, move), "id": device}


def _rewrite_flow_service(match: re.Match[str], move: Relocation) -> str:
    flow = int(match[1])
    if not move.is_source_id(_FLOW_SEQUENCE, flow):
        return match[0]
    return f"system.integration.{move.shift_id(_FLOW_SEQUENCE, flow)}"


def _create_node_registry() -> NodeRegistry:
    """Return a registry of all node types, which can inspect designs but not run them."""
    nothing: Any = SimpleNamespace(sandbox=None, http=None, mail=None, mqtt=None)
    return create_registry(nothing, nothing, nothing)


NODE_REGISTRY = _create_node_registry()
