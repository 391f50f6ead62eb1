"""Reports of devices of the product `generic` determine their shape."""

from datetime import UTC, datetime, timedelta

import pytest
from bson import BSON

from libs.common.contracts.limits import Limits
from libs.common.things import GENERIC_MODEL
from services.device.members.directory import MemberSetDirectory
from services.device.members.shapes import ShapeStore
from services.device.things.model import device_from_document
from services.device.things.specifications import TslStore
from tests.integration.device.telemetry.world import World


async def shape_of(world: World, number: int) -> dict[str, tuple[int, str]]:
    """Number and type of each path of a device."""
    device = await world.database["devices"].find_one({"_id": number})
    key = device_from_document(device).member_set_key
    members = (
        await MemberSetDirectory(world.database, TslStore(world.database)).find("default", [key])
    )[key]
    return {member.path: (member.number, member.value_type) for member in members.members}


async def report(world: World, *reports: tuple[str, dict[str, object]]) -> None:
    await world.say_all([(sn, {"properties": properties}) for sn, properties in reports])
    await world.deal(len(reports))


async def test_paths_are_numbered_as_they_come_and_keep_their_numbers(world: World):
    """New ones follow; types widen and never narrow; a device that reported nothing has none."""
    sn = await world.add(1, GENERIC_MODEL)
    assert await shape_of(world, 1) == {}
    await report(world, (sn, {"b": 1, "a": True}))
    assert await shape_of(world, 1) == {"a": (1, "BOOLEAN"), "b": (2, "LONG")}
    await report(world, (sn, {"gps": {"lat": 1.5, "at": {"x": 1}}, "b": 2.5}), (sn, {"b": 3}))
    grown = {
        "a": (1, "BOOLEAN"),
        "b": (2, "DOUBLE"),
        "gps": (3, "OBJECT"),
        "gps.at.x": (4, "LONG"),
        "gps.lat": (5, "DOUBLE"),
    }
    assert await shape_of(world, 1) == grown
    await report(world, (sn, {"a": "text", "list": [1]}))
    assert await shape_of(world, 1) == grown | {"a": (1, "STRING"), "list": (6, "OBJECT")}


async def test_devices_that_report_the_same_share_a_shape(world: World):
    """However many devices there are."""
    sns = [await world.add(number, GENERIC_MODEL) for number in range(1, 6)]
    await report(world, *((sn, {"t": number, "h": 1}) for number, sn in enumerate(sns)))
    assert len(await world.database["devices"].distinct("shape")) == 1
    assert await world.database["shapes"].count_documents({}) == 1


async def test_shapes_of_two_processes_are_merged(world: World):
    """A process whose write failed, because another was faster, writes with the next report."""
    sn = await world.add(1, GENERIC_MODEL)
    other = world.process()
    await report(world, (sn, {"a": 1}))
    await world.say_all([(sn, {"properties": {"b": 1}})])
    await other.ingest.handle(await world.fetch(1))
    for _ in range(2):
        await report(world, (sn, {"c": 1}))
    assert await shape_of(world, 1) == {"a": (1, "LONG"), "b": (2, "LONG"), "c": (3, "LONG")}


@pytest.mark.parametrize("model", ["m", "gone"])
async def test_devices_of_other_products_have_no_shape(world: World, model):
    """Their TSL says what they have."""
    sn = await world.add(1, model)
    await world.say(sn, {"properties": {"temperature": 1}})
    await world.deal(1)
    assert await world.database["shapes"].count_documents({}) == 0
    assert "shape" not in await world.database["devices"].find_one({"_id": 1})


async def stored_bytes(world: World) -> int:
    return sum([len(BSON.encode(one)) async for one in world.database["shapes"].find()])


async def test_the_shape_of_a_device_with_many_paths_is_bounded(world: World):
    """It grows with the paths up to a limit; history has the others."""
    sn = await world.add(1, GENERIC_MODEL)
    process = world.process(limits=Limits(paths=60))
    sizes = []
    for n in range(80):
        await world.say(sn, {"properties": {f"path-{n:03}": n}})
        await process.ingest.handle(await world.fetch(1))
        sizes.append(await stored_bytes(world))
    assert sizes[59] < 2.2 * sizes[29]
    assert sizes[79] == sizes[59]
    assert {path: number for path, (number, _) in (await shape_of(world, 1)).items()} == {
        f"path-{n:03}": n + 1 for n in range(60)
    }
    assert await world.latest_of(1) == {f"path-{n:03}": n for n in range(60)}
    assert len(await world.stored()) == 80


async def test_a_shape_of_an_earlier_version_keeps_its_numbers_and_grows(world: World):
    """It is stored whole and has no time."""
    sn = await world.add(1, GENERIC_MODEL, shape="f" * 32)
    members = [["temp", "LONG"], ["gps", "OBJECT"], ["gps.lat", "DOUBLE"]]
    await world.database["shapes"].insert_one({"_id": "f" * 32, "members": members})
    await report(world, (sn, {"temp": 1.5, "a": 1}))
    assert await shape_of(world, 1) == {
        "temp": (1, "DOUBLE"),
        "gps": (2, "OBJECT"),
        "gps.lat": (3, "DOUBLE"),
        "a": (4, "LONG"),
    }


async def test_shapes_that_no_device_names_are_deleted(world: World):
    """Once nobody was given them for some time; those that others are built on stay."""
    first, second = await world.add(1, GENERIC_MODEL), await world.add(2, GENERIC_MODEL)
    await report(world, (first, {"a": 1}), (second, {"a": 1}))
    for key in "bcd":
        await report(world, (first, {key: 1}))
    devices = world.first.devices
    count, store = world.database["shapes"].count_documents, ShapeStore(world.database)
    assert await count({}) == 4
    assert await store.delete_unused(devices, datetime.now(UTC) - timedelta(hours=1)) == 0
    await world.database["devices"].delete_one({"_id": 1})
    later = datetime.now(UTC) + timedelta(hours=1)
    assert await store.delete_unused(devices, datetime.now(UTC) - timedelta(hours=1)) == 0
    assert await store.delete_unused(devices, later) == 3
    assert await shape_of(world, 2) == {"a": (1, "LONG")}
    await world.database["devices"].delete_one({"_id": 2})
    assert await store.delete_unused(devices, later) == 1
    assert await count({}) == 0
