"""Where devices are, said by hand; and since when they are online."""

from functools import partial
from typing import Any

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from tests.integration.device.values.test_adding import lamp
from tests.integration.device.values.world import Lamps, World

ROAD = {"latitude": "1.500000", "longitude": "-2.500000", "address": " Road "}
SHOWN = {"latitude": 1.5, "longitude": -2.5, "address": "Road"}
COORDINATE_MISSING = "device_location_latitude_and_longitude_not_both_provided"
ADDRESS_ALONE = "device_location_setting_address_without_latitude_and_longitude"


async def test_a_place_is_set_shown_and_cleared(world: World):
    """Degrees may be text; without a place there is no `location`."""
    path = f"/device/{await world.add_direct('P1')}"
    assert "location" not in await world.admin().done("GET", path)
    assert await world.admin().done("GET", f"{path}/location") is None
    await world.admin().done("PUT", f"{path}/location", ROAD)
    assert (await world.admin().done("GET", path))["location"] == SHOWN
    assert await world.admin().done("GET", f"{path}/location") == SHOWN
    await world.admin().done("PUT", f"{path}/location", {"latitude": 0, "longitude": 180})
    assert await world.admin().done("GET", f"{path}/location") == {
        "latitude": 0.0,
        "longitude": 180.0,
    }
    await world.admin().done("POST", f"{path}/clear-location", {})
    assert "location" not in await world.admin().done("GET", path)


@pytest.mark.parametrize(
    ("sent", "code", "field", "inner"),
    [
        ({}, COORDINATE_MISSING, "latitude", ""),
        ({"latitude": 1}, COORDINATE_MISSING, "longitude", ""),
        ({"longitude": "1"}, COORDINATE_MISSING, "latitude", ""),
        ({"address": "Road"}, ADDRESS_ALONE, "address", ""),
        (
            {"latitude": "north", "longitude": 1},
            *("multiple_error", "latitude", "device_location_latitude_type_error"),
        ),
        (
            {"latitude": 1, "longitude": "nan"},
            *("multiple_error", "longitude", "device_location_longitude_type_error"),
        ),
        (
            {"latitude": "90.1", "longitude": 1},
            *("multiple_error", "latitude", "entity_value_out_of_range"),
        ),
        (
            {"latitude": 1, "longitude": -181},
            *("multiple_error", "longitude", "entity_value_out_of_range"),
        ),
    ],
)
async def test_a_place_that_is_none_is_refused(
    world: World, sent: dict[str, Any], code: str, field: str, inner: str
):
    """With the codes that consoles know, by the field."""
    path = f"/device/{await world.add_direct('P2-' + str(abs(hash(str(sent)))))}/location"
    body = await world.admin().refused(400, "PUT", path, sent, code=code, field=field)
    assert [one["error_code"] for one in body.get("data", [])] == ([inner] if inner else [])


async def test_a_device_is_added_where_it_is(world: World, lamps: Lamps):
    """An empty place is none; a wrong one adds nothing."""
    await world.admin().done("POST", "/device", lamp("P3-a") | {"location": ROAD})
    assert (await world.device("P3-a"))["location"] == SHOWN
    await world.admin().done("POST", "/device", lamp("P3-b") | {"location": {}})
    assert "location" not in await world.device("P3-b")
    body = lamp("P3-c") | {"location": {"latitude": 1}}
    field = "location.longitude"
    await world.admin().refused(400, "POST", "/device", body, code=COORDINATE_MISSING, field=field)
    assert await world.device("P3-c") is None


async def test_only_visible_devices_can_be_located(world: World):
    """A device without a grant gets 404; all three operations need their functions."""
    mine, hidden = await world.add_direct("P4-a"), await world.add_direct("P4-b")
    world.grants.give(7, ResourceType.DEVICE, mine)
    for method, what, function in (
        ("PUT", "location", Function.DEVICE_EDIT),
        ("POST", "clear-location", Function.DEVICE_EDIT),
        ("GET", "location", Function.DEVICE_VIEW),
    ):
        body = ROAD if method == "PUT" else None
        await world.user(7).done(method, f"/device/{mine}/{what}", body)
        await world.user(7).refused(404, method, f"/device/{hidden}/{what}", body)
        for other in Function:
            answer = await world.user(7, other).ask(method, f"/device/{mine}/{what}", body)
            assert (answer.status_code == 403) == (other is not function), other


async def test_a_status_has_a_time(world: World):
    """That of the change; who was never online has neither."""
    path = f"/device/{(device := await world.add_direct('P5'))}"
    assert {"status", "status_updated_at"}.isdisjoint(await world.admin().done("GET", path))
    devices, mongo = world.foundation.things.devices, world.clients.mongo
    told = []
    for status in ("ONLINE", "OFFLINE"):
        await mongo.transaction(partial(devices.presence.set_status, [device], status))
        row = await world.admin().done("GET", path)
        told.append((row["status"], row["status_updated_at"]))
    assert [status for status, _ in told] == ["ONLINE", "OFFLINE"]
    assert 1_600_000_000_000 < told[0][1] <= told[1][1]
