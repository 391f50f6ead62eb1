"""A tenant with one of everything, and whether anything of it has changed, byte by byte."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.adversary.records import DEVICES, MOVING, PASSING, connect_mongo
from tests.contract.cast import Cast, make_cast
from tests.contract.client import MODEL, PRODUCT, Api
from tests.contract.console import Console, console_accepted, new_admin, new_name
from tests.contract.hall import add_custom
from tests.e2e.platform import Platform
from tests.integration.workflow.designs import design, edge, node, trigger

Json = dict[str, Any]
Snapshot = dict[str, bytes]
"""Documents of all databases, by collection and id."""
EVALUATION = "alarm_states"
"""Proceeds with time; its results are alarms, which are compared."""
_RAW = bson.CodecOptions(document_class=RawBSONDocument)
_WITHOUT = dict.fromkeys(MOVING, False)
KEY_BYTES = 8
"""With the id of a device in so many bytes the keys of its history begin."""
ECHO = design(
    [
        trigger(("x", "LONG")),
        node("end", "output", outputVariables={"again": "#{properties.start['x']}"}),
    ],
    edge("start", "end"),
)


@dataclass
class Victim:
    """The tenant, and the documents that were created while it was built."""

    platform: Platform
    tenant: str
    cast: Cast
    strangers: frozenset[str | int]
    """Tenants and the user whose own documents may change."""
    before: Snapshot = field(default_factory=dict)

    def ids(self, name: str) -> str:
        """An id of the victim, by the name that an operation gives it."""
        return self.cast.targets[name]

    def changes(self) -> list[str]:
        """The victim's documents that changed or disappeared, and new ones that name it."""
        device = int(self.ids("device_id"))
        marks: set[Any] = {self.tenant, self.ids("sn")}
        things = marks | {device, device.to_bytes(KEY_BYTES, "big")}
        with connect_mongo(self.platform) as mongo:
            now = read_all(mongo)
        wrong = []
        for key, raw in self.before.items():
            if now.get(key) != raw:
                after = bson.decode(now[key]) if key in now else None
                wrong.append(f"{key}: {bson.decode(raw)} is now {after}")
        for key in now.keys() - self.before.keys():
            named = set(_marks(bson.decode(now[key])))
            known = things if key.startswith(DEVICES) else marks  # a number may be another's id
            if named & known and not named & self.strangers:
                wrong.append(f"new: {key}: {bson.decode(now[key])}")
        return wrong


async def make_victim(platform: Platform, stranger: tuple[str, Console]) -> Victim:
    """Build the tenant. What it runs has settled when this returns."""
    with connect_mongo(platform) as mongo:
        known = read_all(mongo)
        tenant, admin = await new_admin(platform)
        made = await platform.make_application(new_name(), tenant, events=True)
        secret, identity = made["clientSecret"], int(made["applicationId"])
        api = await Api(platform.base_url, made["clientId"], secret, identity).log_in()
        await api.done("PUT", f"/products/{MODEL}", PRODUCT)
        cast = await make_cast(api, admin, stranger[1])
        await _fill(cast)
        person = cast.powerless
        strangers = frozenset({stranger[0], int(person.id), str(person.id), person.email})
        victim = Victim(platform, tenant, cast, strangers)
        while True:
            found = read_all(mongo)
            fresh = {key: raw for key, raw in found.items() if key not in known}
            mine = {
                key: raw
                for key, raw in fresh.items()
                if not set(_marks(bson.decode(raw))) & strangers
            }
            if mine == victim.before:
                return victim
            victim.before = mine
            await asyncio.sleep(2)


async def _fill(cast: Cast) -> None:
    """Add what a tenant has after a while to what the cast has."""
    admin, targets = cast.admin, cast.targets
    sn, key = cast.device
    device = targets["device_id"]
    hot = {"type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 30}
    rule = {"name": new_name(), "severity": "MAJOR", "condition": hot, "device_id": device}
    await admin.done("POST", "/alarm-rules", rule)
    await cast.api.report(sn, key, {"properties": {"temperature": 35.5, "led": True}})
    await cast.api.http.post(
        f"/ingest/v1/{sn}/event",
        json={"eventId": "historical_data", "outputs": {"temperature": 1}},
        auth=(sn, key),
        params={"wait": "stored"},
    )
    call = {"type": "SERVICE", "deviceIds": [device], "config": {"serviceId": "reboot"}}
    answer = await cast.api.ask("POST", f"/devices/{device}/services/call", {"serviceId": "reboot"})
    assert answer.is_success, (call, answer.text)
    (command,) = await cast.api.commands(sn, key)
    targets["task_id"] = str(command["commandId"])
    await cast.api.reply(sn, key, {"commandId": command["commandId"], "status": "SUCCESS"})
    custom = await add_custom(admin)
    tagged = {
        "operation": "ADD",
        "entity_ids": [custom["id"]],
        "added_tag_ids": [targets["tag_id"]],
    }
    console_accepted(await admin.ask("POST", "/entity/tags/mapping", tagged), data=False)
    move = {"device_id_list": [device], "group_id": targets["group_id"]}
    console_accepted(await admin.ask("POST", "/device/move-to-group", move), data=False)
    flow = {"name": new_name(), "design_data": ECHO, "enabled": True}
    saved = await admin.done("POST", "/workflow/flows/design", flow)
    called = {f"system.integration.{saved['id']}.x": 4}
    await admin.done("POST", "/entity/service/call", {"exchange": called})
    (run,) = await admin.done("POST", f"/workflow/flows/{saved['id']}/logs/search", {})
    targets |= {"flow_id": saved["id"], "log_id": run["id"]}
    script = {"script": "function Decode() { return {} }"}
    codec = await admin.ask("PUT", f"/product/{MODEL}/codec", script)
    assert codec.is_success, codec.text
    search = {"page_size": 10, "page_number": 1}
    async with asyncio.timeout(30):
        while not (found := await admin.done("POST", "/alarms/search", search))["content"]:
            await asyncio.sleep(0.2)
    targets["alarm_id"] = found["content"][0]["id"]


def read_all(mongo: MongoClient[Json]) -> Snapshot:
    """Every document of the platform, but for what comes and goes by itself."""
    return {
        f"{name}.{collection}/{document['_id']!r}": document.raw
        for name in mongo.list_database_names()
        if name.startswith("thingway")
        for collection in mongo[name].list_collection_names()
        if collection not in PASSING | {EVALUATION} and not collection.startswith("system.")
        for document in mongo[name].get_collection(collection, _RAW).find({}, _WITHOUT)
    }


def _marks(node: Any) -> Iterator[str | int | bytes]:
    """Scalars in a document by which its owner is known."""
    if isinstance(node, dict):
        for value in node.values():
            yield from _marks(value)
    elif isinstance(node, list):
        for value in node:
            yield from _marks(value)
    elif isinstance(node, bytes):
        yield bytes(node[:KEY_BYTES])
    elif isinstance(node, str | int):
        yield node
