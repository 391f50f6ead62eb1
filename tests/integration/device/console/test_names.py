"""What `auth` and `management` are told about devices."""

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.contracts.names import (
    MAX_DESCRIBED_DEVICES,
    CountDevices,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DeviceCount,
    DeviceCounts,
)
from libs.common.errors import InvalidInput

TSL = {
    "version": "1.0",
    "properties": [
        {"id": "power", "name": "Power", "accessMode": "RW", "dataSpec": {"dataType": "BOOL"}},
        {"id": "level", "name": "Level", "accessMode": "R", "dataSpec": {"dataType": "INT"}},
    ],
    "events": [],
    "services": [{"id": "blink", "name": "Blink", "inputs": [], "outputs": []}],
}


async def ask(world: Any, **wanted: Any) -> DescribedDevices:
    request = DescribeDevices(**{"tenant": "default", **wanted})
    found: DescribedDevices = await world.rpc("describe_devices", request, DescribedDevices)
    return found


async def ids(world: Any, **wanted: Any) -> list[int]:
    return [device.id for device in (await ask(world, **wanted)).devices]


async def test_devices_are_described(world):
    """With name, integration, time and who added it, when a user did."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = await world.add("A1", "Lamp", createdAt=at)
    second = await world.add("A2", "Door", createdAt=at, integration="ping", userId=2**40)

    found = await ask(world)

    ms = int(at.timestamp() * 1000)
    assert found == DescribedDevices(
        [
            DescribedDevice(second, "Door", "ping", ms, user_id=2**40),
            DescribedDevice(first, "Lamp", "direct", ms),
        ],
        total=2,
    )


async def test_ids_and_integrations_add_up(world):
    """Unknown ones are left out; empty lists give nothing."""
    lamp = await world.add("A1")
    door = await world.add("A2", integration="ping")
    await world.add("A3", integration="other")

    assert await ids(world, ids=[lamp, 99]) == [lamp]
    assert await ids(world, integrations=["ping", "unknown"]) == [door]
    assert await ids(world, ids=[lamp], integrations=["ping"]) == [door, lamp]
    assert await ids(world, ids=[], integrations=[]) == []


async def test_exclusions_take_away(world):
    """By id and by integration."""
    lamp = await world.add("A1")
    await world.add("A2", integration="ping")
    bell = await world.add("A3")

    assert await ids(world, exclude_ids=[bell], exclude_integrations=["ping"]) == [lamp]


async def test_a_keyword_matches_names_and_named_integrations(world):
    """In part, in any case, and literally."""
    lamp = await world.add("A1", "Lamp (red)")
    door = await world.add("A2", "Door", integration="ping")

    assert await ids(world, keyword="AMP (") == [lamp]
    assert await ids(world, keyword="d", keyword_integrations=[]) == [door, lamp]
    assert await ids(world, keyword="x", keyword_integrations=["ping"]) == [door]
    assert await ids(world, keyword=".*") == []


async def test_devices_are_ordered_and_paged(world):
    """The total counts all of them, when it is wanted."""
    made = {name: await world.add(f"A{at}", name) for at, name in enumerate("bca")}

    page = await ask(world, order=[("name", 1)], skip=1, limit=1)
    assert ([device.name for device in page.devices], page.total) == (["b"], 3)
    assert (await ask(world, counted=False)).total == 0
    assert await ids(world, order=[("createdAt", 1)]) == list(made.values())
    assert await ids(world, order=[("id", -1)]) == sorted(made.values(), reverse=True)


async def test_devices_are_ordered_by_the_names_of_their_integrations(world):
    """Those of an unknown integration come first; devices of one are in the next order."""
    direct = await world.add("A1", "b")
    system = await world.add("A2", integration="system")
    gone = await world.add("A3", integration="gone")
    other = await world.add("A4", "a")

    order = [("integrationName", 1), ("name", 1)]
    assert await ids(world, order=order) == [gone, other, direct, system]
    assert await ids(world, order=order, skip=1, limit=2) == [other, direct]
    assert await ids(world, order=[("integrationName", -1)]) == [system, other, direct, gone]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": MAX_DESCRIBED_DEVICES + 1}, "limit"),
        ({"skip": -1}, "skip"),
        ({"order": [("passwordHash", 1)]}, "order"),
        ({"order": [("name", 2)]}, "order"),
    ],
)
async def test_an_invalid_request_for_names_is_rejected(world, wanted, field):
    """The caller gets an error with the field."""
    with pytest.raises(InvalidInput, match=field):
        await ask(world, **wanted)


async def test_no_device_of_another_tenant_is_described_or_counted(world):
    """Not even by its id."""
    theirs = await world.add("A1", tenant="elsewhere")

    assert await ids(world, ids=[theirs]) == []
    assert await world.rpc("count_devices", CountDevices("default"), DeviceCounts) == (
        DeviceCounts({})
    )


async def test_devices_and_entities_are_counted_by_integration(world):
    """As many entities as the TSLs have members; what never reported has none."""
    await world.put_product("LAMP", TSL)
    await world.add("A1", model="LAMP")
    await world.add("A2", model="LAMP")
    await world.add("A3", model="LAMP", integration="ping")
    await world.add("A4", integration="ping")

    found = await world.rpc("count_devices", CountDevices("default"), DeviceCounts)

    assert found == DeviceCounts({"direct": DeviceCount(2, 6), "ping": DeviceCount(2, 3)})
