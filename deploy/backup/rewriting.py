"""Ids and seals of documents that move to another installation.

Every installation counts ids from one number on, so those of a tenant would meet others. Each
sequence is shifted as a whole: an id is `old + shift`, for which the target's counter has set a
range aside. Ids in documents of consoles and editors, which are theirs to form, are found by
what they are: an entity's id is a number that only entities have.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.ids import FIRST
from libs.common.things import MEMBERS
from services.device.telemetry.partitions import KEY
from services.workflow.credentials.store import context_of
from services.workflow.nodes.base import Registry
from services.workflow.nodes.wiring import node_types
from services.workflow.notifications.model import Notifications
from services.workflow.notifications.service import sealed_for, with_secret
from services.workflow.vault import contexts_in

Document = dict[str, Any]

_THINGS, _FLOWS = "device.things", "workflow.flows"
_THING_SIZE = 8
"""Bytes of a thing's id, with which keys begin."""
_FLOW_SERVICE = re.compile(r"\bsystem\.integration\.(\d{7,15})(?![\w-])")
"""The key of a flow's service has the flow's id."""
_ID = r"[1-9][0-9]{6,15}"
_NAMED = (
    (re.compile(r"device_?id$", re.IGNORECASE), "device.things"),
    (re.compile(r"group_?id$", re.IGNORECASE), "device.device_groups"),
)
"""Which ids stand in what consoles and editors form, by the names of members."""
_DEVICES = "devices"
"""A list of `{id}` in a widget."""
_DIGITS = 16
"""Of the longest id."""
_GRANTED = {
    "DASHBOARD": "management.dashboards",
    "WORKFLOW": _FLOWS,
    "DEVICE": _THINGS,
    "DEVICE_GROUP": "device.device_groups",
}
_ACTORS = {"user": "auth.users", "application": "auth.applications"}
_AUDITED = {
    "user": "auth.users",
    "role": "auth.roles",
    "menu": "auth.menus",
    "application": "auth.applications",
    "session": "auth.users",
}


@dataclass(frozen=True)
class Moving:
    """How ids and seals change on the way."""

    shifts: Mapping[str, int]
    """What is added to the ids of each sequence (`{service}.{name}`)."""
    ends: Mapping[str, int]
    """Where the sequences end at the source: ids lie below."""
    tenant: str
    account: tuple[Seal, Seal]
    """What secrets of integrations are opened with, and sealed with again."""
    flows: tuple[Seal, Seal]
    """The same of flows."""
    contexts: dict[str, str] = field(default_factory=dict)
    """What secrets of flows are sealed for, by their marks; the designs say it."""

    def id(self, sequence: str, old: int) -> int:
        """The id that takes the place of another."""
        return old + self.shifts.get(sequence, 0)

    def known(self, sequence: str, value: int) -> bool:
        """Whether a number may be an id of the sequence."""
        return FIRST <= value < self.ends.get(sequence, FIRST)

    def entity(self, value: int) -> int:
        """A number, which is another one when it is the id of an entity."""
        if not self.known(_THINGS, value // MEMBERS):
            return value
        return value + self.shifts.get(_THINGS, 0) * MEMBERS


def shift(document: Document, ids: Mapping[str, str], moving: Moving) -> None:
    """Change the ids at known places; `a.b` is in each element where `a` is a list."""
    for path, sequence in ids.items():
        _shift_at(document, path.split("."), sequence, moving)


def _shift_at(value: Any, path: list[str], sequence: str, moving: Moving) -> None:
    if isinstance(value, list):
        for one in value:
            _shift_at(one, path, sequence, moving)
        return
    if not isinstance(value, dict) or value.get(path[0]) is None:
        return
    if len(path) > 1:
        _shift_at(value[path[0]], path[1:], sequence, moving)
    elif isinstance(value[path[0]], list):
        value[path[0]] = [moving.id(sequence, one) for one in value[path[0]]]
    else:
        value[path[0]] = moving.id(sequence, value[path[0]])


def own_thing(document: Document, moving: Moving) -> None:
    """The service of a flow is called by the flow's id, which is shifted by now."""
    if document.get("flow") is not None:
        document["identifier"] = str(document["flow"])


def alarm_state(document: Document, moving: Moving) -> None:
    """The key is that of rule and device, which are shifted by now."""
    document["_id"] = f"{document['rule']}.{document['generation']}.{document['device']}"


def alarm(document: Document, moving: Moving) -> None:
    """It names its state, and the users who have claimed or cleared it."""
    if "state" in document:
        _, generation, _ = document["state"].split(".")
        document["state"] = f"{document['rule']}.{generation}.{document['device']}"
    for name in ("claimedBy", "clearedBy"):
        if str(document.get(name)).isdecimal():
            document[name] = str(moving.id("auth.users", int(document[name])))


def key_of_thing(document: Document, moving: Moving) -> None:
    """A key of history begins with the thing."""
    thing, at, sequence = KEY.unpack(document["_id"])
    document["_id"] = KEY.pack(moving.id(_THINGS, thing), at, sequence)


def frame(document: Document, moving: Moving) -> None:
    """The key, the identity and the keys of what it remembered begin with the device."""
    key_of_thing(document, moving)
    thing = document["_id"][:_THING_SIZE]
    for name in ("i", "h"):
        if name in document:
            keys = document[name]
            several = isinstance(keys, list)
            made = [thing + bytes(key)[_THING_SIZE:] for key in (keys if several else [keys])]
            document[name] = made if several else made[0]


def tagged_entity(document: Document, moving: Moving) -> None:
    """The key is that of an entity."""
    document["_id"] = moving.entity(document["_id"])


def canvas(document: Document, moving: Moving) -> None:
    """Widgets are a console's own, and name entities by id."""
    for widget in document["widgets"]:
        widget["data"] = _json(widget["data"], moving).decode()
    document["entityIds"] = [moving.entity(one) for one in document.get("entityIds", ())]


def attached_canvas(document: Document, moving: Moving) -> None:
    """A canvas of a device, or a further one of a dashboard."""
    canvas(document, moving)
    sequence = _THINGS if document["attachType"] == "DEVICE" else _GRANTED["DASHBOARD"]
    document["attachId"] = moving.id(sequence, document["attachId"])


def design(document: Document, moving: Moving) -> None:
    """A design is an editor's own; the secrets in it are sealed for what it says."""
    note_contexts(document, moving)
    document["design"] = _json(document["design"], moving).decode()


def note_contexts(document: Document, moving: Moving) -> None:
    """Note what the secrets of a design are sealed for."""
    moving.contexts.update(contexts_in(moving.tenant, document["design"], REGISTRY))


def deployed(document: Document, moving: Moving) -> None:
    """A flow as it runs: `deployed` or `flow`, and the settings of a timer."""
    for name in ("deployed", "flow"):
        if name in document:
            document[name] = _json(document[name], moving, flow=True)


def flow_secret(document: Document, moving: Moving) -> None:
    """A secret is sealed with the key of its installation; one that nothing names is let go."""
    context = moving.contexts.get(document["_id"])
    if context is not None:
        document["sealed"] = _sealed_again(document["sealed"], context, moving.flows)


def account(document: Document, moving: Moving) -> None:
    """The secret of `openapi-client`."""
    if document.get("secret"):
        document["secret"] = _sealed_again(document["secret"], moving.tenant, moving.account)


def network_server(document: Document, moving: Moving) -> None:
    """The secrets with which a tenant's network server is logged in to."""
    for secret in document.get("secrets", {}).values():
        secret["sealed"] = _sealed_again(secret["sealed"], moving.tenant, moving.account)


def credential(document: Document, moving: Moving) -> None:
    """A credential is sealed as secrets of flows are."""
    document["sealed"] = _sealed_again(document["sealed"], context_of(document), moving.flows)


def notifications(document: Document, moving: Moving) -> None:
    """The secret of a user's webhook."""
    settings = msgspec.convert(document["settings"], Notifications)
    if settings.webhook is not None and settings.webhook.secret:
        context = sealed_for(moving.tenant, settings.webhook)
        again = _sealed_again(settings.webhook.secret, context, moving.flows)
        settings = with_secret(settings, again)
    document["settings"] = msgspec.to_builtins(settings)


SEALED = (flow_secret, credential, account, network_server, notifications)
"""What changes seals."""


def grant(document: Document, moving: Moving) -> None:
    """What is granted is named by type and id."""
    if document["type"] == "ENTITY":
        document["id"] = moving.entity(document["id"])
    elif document["type"] in _GRANTED:
        document["id"] = moving.id(_GRANTED[document["type"]], document["id"])


def audit(document: Document, moving: Moving) -> None:
    """Who did it, and to what; ids are texts there."""
    for part, kind, sequences in (("actor", "kind", _ACTORS), ("object", "type", _AUDITED)):
        named = document.get(part, {})
        sequence = sequences.get(named.get(kind, ""))
        if sequence and re.fullmatch(_ID, named.get("id", "")):  # the operator has 0
            named["id"] = str(moving.id(sequence, int(named["id"])))


def _sealed_again(sealed: str, context: str, seals: tuple[Seal, Seal]) -> str:
    before, after = seals
    try:
        return after.seal(before.open(sealed, context), context)
    except SealBroken:
        return sealed  # it could not be opened where it comes from either


def _json(text: str | bytes, moving: Moving, *, flow: bool = False) -> bytes:
    """JSON with other ids in it; a draft that is no JSON stays as it is."""
    try:
        content = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.encode() if isinstance(text, str) else text
    if flow:
        content["flowId"] = moving.id(_FLOWS, content["flowId"])
    return msgspec.json.encode(_walked(content, moving))


def _walked(value: Any, moving: Moving) -> Any:
    if isinstance(value, dict):
        return {name: _member(name, one, moving) for name, one in value.items()}
    if isinstance(value, list):
        return [_walked(one, moving) for one in value]
    if isinstance(value, str):
        return _text(value, moving)
    return moving.entity(value) if type(value) is int else value


def _text(value: str, moving: Moving) -> str:
    if value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return str(moving.entity(int(value)))
    return _FLOW_SERVICE.sub(lambda found: _flow_service(found, moving), value)


def _member(name: str, value: Any, moving: Moving) -> Any:
    """A member of an object; devices and groups are told from numbers by its name."""
    if name == _DEVICES and isinstance(value, list):
        return [_listed_device(one, moving) for one in value]
    for pattern, sequence in _NAMED:
        if pattern.search(name) and re.fullmatch(_ID, str(value)):
            known = moving.known(sequence, int(value))
            return type(value)(moving.id(sequence, int(value))) if known else value
    return _walked(value, moving)


def _listed_device(value: Any, moving: Moving) -> Any:
    if not isinstance(value, dict) or "id" not in value:
        return _walked(value, moving)
    device = _member("device_id", value["id"], moving)
    return {**_walked(value, moving), "id": device}


def _flow_service(found: re.Match[str], moving: Moving) -> str:
    flow = int(found[1])
    if not moving.known(_FLOWS, flow):
        return found[0]
    return f"system.integration.{moving.id(_FLOWS, flow)}"


def _registry() -> Registry:
    """The node types, to be read and not to be run."""
    nothing: Any = SimpleNamespace(sandbox=None, http=None, mail=None, mqtt=None)
    return node_types(nothing, nothing, nothing)


REGISTRY = _registry()
