"""Devices of several models, things of integrations, and custom entities."""

from typing import Any

from libs.common.identity.grants import Grants
from libs.common.things import get_entity_thing_id
from services.device.members.directory import MemberSetDirectory
from services.device.members.entity import Entity, thing_from_device, thing_from_document
from services.device.things.model import device_from_document
from services.device.things.specifications import TslStore
from tests.integration.device.console.world import World


def _property(key: str, kind: str, mode: str = "R", **more: Any) -> dict[str, Any]:
    return {"id": key, "accessMode": mode, "dataSpec": {"dataType": kind}, **more}


CLIMATE = {
    "version": "v1.0",
    "properties": [
        _property("temperature", "FLOAT", name="Temperature"),
        _property("battery", "INT", name="Battery"),
        _property("wifi", "STRUCT", "RW", name="Wi-Fi"),
        _property("wifi.ssid", "STRING", "RW", name="SSID"),
        _property("wifi.ap.channel", "INT", "W"),
        _property("wifi.ap", "STRUCT", "RW"),
        _property("samples", "ARRAY", name="Samples"),
        _property("samples._item", "FLOAT"),
        {
            "id": "mode",
            "name": "Mode",
            "accessMode": "RW",
            "dataSpec": {"dataType": "ENUM", "mapping": {"0": "Off", "1": "On"}},
        },
    ],
    "events": [
        {
            "id": "alarm",
            "name": "Alarm",
            "outputs": [{"id": "alarm.level", "dataSpec": {"dataType": "INT"}}],
        }
    ],
    "services": [
        {
            "id": "reboot",
            "name": "Reboot",
            "inputs": [{"id": "reboot.delay", "dataSpec": {"dataType": "INT"}}],
        }
    ],
}
SMALL = {
    "version": "v1.0",
    "properties": [
        _property("battery", "INT", name="Battery level"),
        _property("door", "BOOL", name="Door"),
    ],
}


def member(number: int, path: str, **more: Any) -> dict[str, Any]:
    """Return a member of a thing without a device."""
    fields = {"type": "PROPERTY", "name": path or "itself", "value_type": "STRING"}
    return {"number": number, "path": path, "access_mod": "RW", **fields, **more}


async def seed(world: World) -> dict[str, int]:
    """Insert things with a letter each."""
    await world.put_product("CLIMATE", CLIMATE)
    await world.put_product("SMALL", SMALL)
    shape = "f" * 32
    await world.database["shapes"].insert_one(
        {"_id": shape, "members": [["temp", "LONG"], ["gps", "OBJECT"], ["gps.lat", "DOUBLE"]]}
    )
    found = {
        "a": await world.add(
            "SN-A1", "Hall", "CLIMATE", entityNames='{"wifi.ap.channel":"Door net"}'
        ),
        "b": await world.add("SN-A2", "hall door", "SMALL"),
        "c": await world.add("SN-C", "Cellar", "CLIMATE", integration="simulator"),
        "g": await world.add(
            "GEN-1", "Battery of the attic", shape=shape, entityNames='{"temp":"Temperature"}'
        ),
        "h": await world.add("GEN-2", "Silent"),
        "x": await world.add("SN-X", "Hall", "CLIMATE", tenant="other")
        if await world.put_product("CLIMATE", CLIMATE, "other") is None
        else 0,
    }
    found["p"] = await world.custom(
        "",
        member(1, "status", name="Status"),
        integration="ping",
        tenant="default",
        entityNames='{"status":"Reached"}',
    )
    found["k"] = await world.custom(
        "counter",
        member(0, "", name="Counter", value_type="LONG"),
    )
    found["m"] = await world.custom(
        "scene",
        member(0, "", name="Scene", type="SERVICE", value_type="OBJECT", access_mod=None),
        member(1, "level", name="Level", type="SERVICE", parent="", access_mod="W"),
        member(2, "ghost", name="Ghost", type="SERVICE", parent="", visible=False),
    )
    found["t"] = await world.add("TWIN-1", "twin one", "SMALL")
    found["d"] = await world.add(
        "SN-D", "Door", "SMALL", entityNames='{"battery":"Cell","door":"Battery level"}'
    )
    return found


async def everything(world: World, tenant: str = "default") -> list[Entity]:
    """Return every entity of a tenant by a plain read."""
    documents = await world.database["devices"].find({"tenant": tenant}).to_list(None)
    devices = list(map(device_from_document, documents))
    member_sets = await MemberSetDirectory(world.database, TslStore(world.database)).find(
        tenant, [one.member_set_key for one in devices]
    )
    things = [thing_from_device(device, member_sets[device.member_set_key]) for device in devices]
    things += [
        thing_from_document(document)
        for document in await world.database["things"].find({"tenant": tenant}).to_list(None)
    ]
    return [Entity(thing, one) for thing in things for one in thing.members.members]


def granted(entity: Entity, grants: Grants) -> bool:
    """Return whether a search shows an entity to a user with all functions."""
    return (
        entity.thing.integration == "system"
        or entity.thing.integration in grants.resources.integrations
        or (entity.thing.device and entity.thing.id in grants.resources.devices)
        or entity.id in grants.resources.entities
    )


__all__ = ["everything", "get_entity_thing_id", "granted", "member", "seed"]
