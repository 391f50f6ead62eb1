"""What devices of the open product report becomes their shape."""

import pytest

from libs.common.things import GENERIC
from services.device.entities.models import Models, model_of
from tests.integration.device.reports.world import World


async def shape_of(world: World, number: int) -> dict[str, tuple[int, str]]:
    """Number and type of each path of a device."""
    device = await world.database["devices"].find_one({"_id": number})
    members = (await Models(world.database).of("default", [model_of(device)]))[model_of(device)]
    return {one.path: (one.number, one.value_type) for one in members.members}


async def report(world: World, *reports: tuple[str, dict[str, object]]) -> None:
    await world.say_all([(sn, {"properties": properties}) for sn, properties in reports])
    await world.deal(len(reports))


async def test_paths_are_numbered_as_they_come_and_keep_their_numbers(world: World):
    """New ones follow; types widen and never narrow; a device that reported nothing has none."""
    sn = await world.add(1, GENERIC)
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
    sns = [await world.add(number, GENERIC) for number in range(1, 6)]
    await report(world, *((sn, {"t": number, "h": 1}) for number, sn in enumerate(sns)))
    assert len(await world.database["devices"].distinct("shape")) == 1
    assert await world.database["shapes"].count_documents({}) == 1


async def test_two_processes_lose_nothing(world: World):
    """What one could not write, because the other was faster, it writes with the next report."""
    sn = await world.add(1, GENERIC)
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
