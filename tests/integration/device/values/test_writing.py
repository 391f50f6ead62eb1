"""Property updates and service calls of users."""

import asyncio
import time
from typing import Any

import pytest

from libs.common.bus import RpcClient
from libs.common.bus.subjects import uplink_subject
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
)
from libs.common.contracts.integrations import (
    CallService,
    DeviceCommand,
    PropertiesUpdated,
)
from libs.common.errors import InvalidInput, TooManyRequests
from libs.common.identity.functions import COMMAND_FUNCTIONS, Function
from libs.common.integrations import IntegrationThings
from services.device.things.device_queries import DeviceQueries
from services.device.things.device_store import DeviceStore
from tests.integration.device.values.test_adding import lamp as lamp_body
from tests.integration.device.values.world import LAMP, Lamps, World

UPDATE, CALL = "/entity/property/update", "/entity/service/call"


async def direct(world: World, sn: str) -> tuple[int, str]:
    """Return a device that connects directly, and its key."""
    await world.put_product("LAMP", LAMP)
    return await world.add_direct(sn, "LAMP"), f"direct.device.{sn}"


async def test_a_device_receives_its_values(world: World):
    """Text is converted, and values apply when the device confirms."""
    thing, key = await direct(world, "W-1")
    exchange = {
        f"{key}.on": "true",
        f"{key}.level": "40",
        f"{key}.colour": "1",
        f"{key}.label": 7,
        f"{key}.wifi.ssid": "net",
        f"{key}.steps": [1, 2],
        f"{key}.power": "1.5",
        "direct.device.nobody.on": True,
        "nonsense": 1,
    }
    async with world.device_answers("W-1") as heard:
        assert await world.admin().done("POST", UPDATE, {"exchange": exchange}) is None

        async def taken() -> bool:
            return bool(await world.foundation.values.find_values([thing]))

        await world.until(taken)
    assert heard[0]["kind"] == "SET_PROPERTIES"
    assert heard[0]["properties"] == {
        "on": True,
        "level": 40,
        "colour": "1",
        "label": "7",
        "wifi": {"ssid": "net"},
        "steps": [1, 2],
    }
    command = await world.database["commands"].find_one({"thingId": thing})
    assert (command["userId"], command["applicationId"]) == (1, None)
    ids = await world.ids(thing)
    status = await world.admin().done("GET", f"/entity/{ids[f'{key}.level']}/status")
    assert status["value"] == 40


@pytest.mark.parametrize(
    ("member", "value", "code", "args"),
    [
        ("level", None, "null", {}),
        ("level", "x", "not_match_type", {"type": "LONG", "value": "x"}),
        ("level", True, "not_match_type", {}),
        ("level", 1.5, "not_match_type", {}),
        ("level", 2**64, "not_match_type", {}),
        ("level", [1], "not_match_type", {}),
        ("level", 101, "out_of_range", {"min": 0, "max": 100, "value": 101}),
        ("on", "yes", "not_match_type", {"type": "BOOLEAN"}),
        ("on", 2, "not_match_type", {}),
        ("colour", 5, "invalid_enum", {"value": 5}),
        ("label", "123456789", "length_longer_than_max_length", {"max_length": 8}),
        ("label", {"a": 1}, "not_match_type", {}),
        ("wifi.ssid", "", "length_shorter_than_min_length", {"min_length": 1}),
        ("blob", "not base64!", "not_match_type", {"type": "BINARY"}),
        ("steps", "x", "not_match_type", {"type": "OBJECT"}),
        ("steps", ["x"], "not_match_type", {}),
        ("wifi", {"nobody": 1}, "not_match_type", {}),
    ],
)
async def test_an_invalid_value_has_a_code(world: World, member, value, code, args):
    """`multiple_error` has codes that consoles know, and no value is set."""
    if await world.device("W-2") is None:
        await direct(world, "W-2")
    thing, key = (await world.device("W-2"))["_id"], "direct.device.W-2"
    content = await world.admin().refused(
        400,
        "POST",
        UPDATE,
        {
            "exchange": {
                f"{key}.on" if member != "on" else f"{key}.level": 1,
                f"{key}.{member}": value,
            }
        },
        code="multiple_error",
    )
    assert content["detail_message"].startswith(f"exchange.{key}.{member}")
    (fault,) = content["data"]
    assert fault["error_code"] == f"entity_value_{code}"
    assert fault["args"]["entity_key"].startswith(f"{key}.{member}")
    assert args.items() <= fault["args"].items()
    assert await world.database["commands"].find_one({"thingId": thing}) is None


async def test_all_faults_are_listed(world: World):
    """One response lists every invalid value."""
    _, key = await direct(world, "W-3")
    exchange = {f"{key}.level": -1, f"{key}.on": "x", f"{key}.label": "fine"}
    content = await world.admin().refused(400, "POST", UPDATE, {"exchange": exchange})
    codes = [fault["error_code"] for fault in content["data"]]
    assert codes == ["entity_value_out_of_range", "entity_value_not_match_type"]


@pytest.mark.parametrize("path", [UPDATE, CALL])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "exchange"),
        ({"exchange": None}, "exchange"),
        ({"exchange": []}, "exchange"),
        ({"exchange": {}}, "exchange"),
        ({"exchange": {"a.device.b.c": 1}}, "exchange"),
        ({"exchange": {"": 1, ".": 2, "a..b": 3, "system.integration.": 4}}, "exchange"),
        ({"exchange": {f"a.device.b.{at}": 1 for at in range(1001)}}, "exchange"),
    ],
)
async def test_a_request_without_known_keys_is_rejected(world: World, path: str, body, field: str):
    """A request with unknown keys only is rejected."""
    await world.admin().refused(400, "POST", path, body, field=field)


async def test_unsuitable_entities_are_ignored(world: World):
    """Read-only properties and services are not set, and properties are not called."""
    _, key = await direct(world, "W-4")
    body = {"exchange": {f"{key}.power": 1.0, f"{key}.dim": {}, f"{key}.alarm.heat": 1}}
    await world.admin().refused(400, "POST", UPDATE, body, field="exchange")
    await world.admin().refused(
        400, "POST", CALL, {"exchange": {f"{key}.on": True}}, field="exchange"
    )


async def test_a_service_of_a_device_is_called_and_answers(world: World):
    """A service is called by its inputs or itself; `entity_id` is ignored."""
    _, key = await direct(world, "W-5")
    async with world.device_answers("W-5", outputs={"was": 80}) as heard:
        body = {"exchange": {f"{key}.dim.to": "10", f"{key}.dim.seconds": 0.5}, "entity_id": "4"}
        assert await world.admin().done("POST", CALL, body) == {"was": 80}
        whole = {"exchange": {f"{key}.dim": {"to": 20}}}
        assert await world.admin().done("POST", CALL, whole) == {"was": 80}
    assert [one["inputs"] for one in heard] == [{"to": 10, "seconds": 0.5}, {"to": 20}]
    device = await world.device("W-5")
    ids = await world.ids(device["_id"])
    past = await world.admin().done(
        "POST", "/entity/history/search", {"entity_id": ids[f"{key}.dim.to"]}
    )
    assert [row["value"] for row in past] == [20, 10]


@pytest.mark.parametrize("given", [{"dim": {}}, {"dim": None}, {"dim.seconds": 1}])
async def test_a_missing_input_is_named(world: World, given):
    """The error names a required input."""
    if await world.device("W-6") is None:
        await direct(world, "W-6")
    key = "direct.device.W-6"
    body = {"exchange": {f"{key}.{name}": value for name, value in given.items()}}
    content = await world.admin().refused(400, "POST", CALL, body, field=f"exchange.{key}.dim.to")
    assert content["data"][0]["error_code"] == "entity_value_null"


async def test_a_rejected_or_late_call_is_an_error(world: World):
    """A rejection is 502 with the device's text; a timeout is 504, and the call continues."""
    thing, key = await direct(world, "W-7")
    body = {"exchange": {f"{key}.dim.to": 10}}
    async with world.device_answers("W-7", "FAILED", error="too hot"):
        content = await world.admin().refused(502, "POST", CALL, body, field="exchange")
        assert content["error_message"] == "too hot"
    content = await world.admin().refused(504, "POST", CALL, body, field="exchange")
    assert "the call continues" in content["error_message"]
    waiting = await world.database["commands"].find_one({"thingId": thing, "status": "SENT"})
    reply = f'{{"commandId": {waiting["_id"]}, "status": "SUCCESS", "outputs": {{"was": 1}}}}'
    await world.outside.client.publish(uplink_subject("W-7", "reply"), reply.encode())

    async def closed() -> bool:
        found = await world.database["commands"].find_one({"_id": waiting["_id"]})
        return found["status"] == "SUCCESS"

    await world.until(closed)


async def test_a_call_of_an_offline_device_is_queued(world: World):
    """The response says that the device receives the call when it connects."""
    await direct(world, "W-13")
    _, other = await direct(world, "W-14")
    exchange = {"direct.device.W-13.dim.to": 10, f"{other}.dim.to": 10}
    async with world.device_answers("W-14", outputs={"was": 80}):
        content = (await world.admin().ask("POST", CALL, {"exchange": exchange})).json()
    assert (content["status"], content["data"]) == ("Success", {"was": 80})
    (queued,) = content["detail"]
    command = await world.database["commands"].find_one({"sn": "W-13"})
    assert (queued["device"], queued["command_id"]) == ("W-13", str(command["_id"]))
    assert queued["expires_at"] > time.time() * 1000
    assert command["status"] == "PENDING"


async def test_an_integration_delivers_commands(world: World, lamps: Lamps):
    """The integration delivers commands and forwards replies."""
    await world.admin().done("POST", "/device", lamp_body("W-8"))

    async def answer() -> None:
        async def asked() -> bool:
            return any(isinstance(one, DeviceCommand) for one in lamps.asked)

        await world.until(asked)
        command = next(one for one in lamps.asked if isinstance(one, DeviceCommand))
        assert command.device.identifier == "W-8"
        assert command.device.additional == {"channel": 0}
        things = IntegrationThings(RpcClient(world.outside), "lamps")
        await things.send_reply(
            "default", "W-8", command.command["commandId"], "SUCCESS", outputs={"was": 3}
        )

    answering = asyncio.ensure_future(answer())
    body = {"exchange": {"lamps.device.W-8.dim.to": 1}}
    assert await world.admin().done("POST", CALL, body) == {"was": 3}
    await answering


async def test_a_device_is_read_once(world: World, lamps: Lamps, monkeypatch: Any):
    """An update reads the device once."""
    await world.admin().done("POST", "/device", lamp_body("W-12"))
    read: list[str] = []
    readers = {
        **dict.fromkeys(("find_by_identifiers", "find_by_id", "find", "find_all"), DeviceStore),
        **dict.fromkeys(("list_by_ids", "list_by_identifiers"), DeviceQueries),
    }
    for name, reader in readers.items():
        plain = getattr(reader, name)

        def spy(*args: Any, name: str = name, plain: Any = plain, **more: Any) -> Any:
            read.append(name)
            return plain(*args, **more)

        monkeypatch.setattr(reader, name, spy)
    body = {"exchange": {"lamps.device.W-12.level": 3}}
    await world.admin().done("POST", UPDATE, body)

    async def carried() -> bool:
        return any(isinstance(one, DeviceCommand) for one in lamps.asked)

    await world.until(carried)
    assert read == ["find_by_identifiers"]


async def test_a_command_is_repeated_for_its_integration(world: World):
    """A command is repeated after its integration was killed."""
    lamps = Lamps()
    async with world.dying(lamps):
        await world.admin().done("POST", "/device", lamp_body("W-9"))
        lamps.answers.clear()
        lamps.reached.clear()
        body = {"exchange": {"lamps.device.W-9.dim.to": 1}}
        calling = asyncio.ensure_future(world.admin().ask("POST", CALL, body))
        await lamps.reached.wait()
    assert (await calling).status_code == 504
    again = Lamps()
    async with world.hosting(again):
        await asyncio.wait_for(again.reached.wait(), 15)
    assert isinstance(again.asked[0], DeviceCommand)


async def test_an_integration_may_reject_a_command(world: World, lamps: Lamps):
    """The command fails with the text of the integration."""
    await world.admin().done("POST", "/device", lamp_body("W-10"))
    lamps.fails = InvalidInput("the lamp is broken")
    body = {"exchange": {"lamps.device.W-10.dim.to": 1}}
    content = await world.admin().refused(502, "POST", CALL, body)
    assert content["error_message"] == "integration lamps refused: the lamp is broken"


async def test_a_command_is_repeated_for_a_busy_integration(world: World, lamps: Lamps):
    """`things.report` in `command` raises 429 if the tenant reports too much."""
    await world.admin().done("POST", "/device", lamp_body("W-17"))
    lamps.fails = TooManyRequests("too many reports", retry_after=1)
    lamps.reached.clear()
    body = {"exchange": {"lamps.device.W-17.dim.to": 1}}
    calling = asyncio.ensure_future(world.admin().ask("POST", CALL, body))
    await lamps.reached.wait()
    lamps.fails = None
    lamps.reached.clear()
    await asyncio.wait_for(lamps.reached.wait(), 30)
    assert isinstance(lamps.asked[-1], DeviceCommand)
    calling.cancel()


async def own(world: World) -> dict[str, str]:
    """Return ids of entities of the integration, which this request creates."""
    wanted = DescribeIntegrationEntities("default", "lamps")
    found = await world.rpc(INTEGRATION_ENTITIES, wanted, ThingEntities)
    return {entity.key: entity for entity in found.entities}


async def test_properties_of_an_integration_apply_immediately(world: World, lamps: Lamps):
    """Values are stored, published, and sent to the integration."""
    entities = await own(world)
    period = entities["lamps.integration.period"]
    exchange = {"lamps.integration.period": "30", "lamps.integration.mode": "1"}
    await world.admin().done("POST", UPDATE, {"exchange": exchange})
    status = await world.admin().done("GET", f"/entity/{period.id}/status")
    assert status["value"] == 30
    (change,) = [one for one in lamps.asked if isinstance(one, PropertiesUpdated)]
    assert change.properties == {"period": 30, "mode": "1"}
    entities = await own(world)
    assert entities["lamps.integration.mode"].value == "1"
    assert entities["lamps.integration.period"].id == period.id
    await world.admin().refused(
        400,
        "POST",
        UPDATE,
        {"exchange": {"lamps.integration.period": 61}},
        code="multiple_error",
    )
    past = await world.admin().done("POST", "/entity/history/search", {"entity_id": str(period.id)})
    assert [row["value"] for row in past] == [30]


async def test_a_rejected_value_is_not_stored(world: World, lamps: Lamps):
    """A rejected value is neither the latest value nor in history."""
    period = (await own(world))["lamps.integration.period"]
    lamps.fails = InvalidInput("is not what it takes", field="period")
    exchange = {"lamps.integration.period": 45}
    await world.admin().refused(400, "POST", UPDATE, {"exchange": exchange})
    past = await world.admin().done("POST", "/entity/history/search", {"entity_id": str(period.id)})
    assert 45 not in [row["value"] for row in past]
    status = await world.admin().done("GET", f"/entity/{period.id}/status")
    assert status.get("value") != 45


async def test_a_service_of_an_integration_is_called(world: World, lamps: Lamps):
    """Services that add and delete devices cannot be called."""
    await own(world)
    body = {"exchange": {"lamps.integration.scan.depth": "4"}}
    assert await world.admin().done("POST", CALL, body) == {"found": 8}
    assert isinstance(lamps.asked[-1], CallService)
    for key, value in (("add_lamp.serial", "abc"), ("remove_lamp", {})):
        body = {"exchange": {f"lamps.integration.{key}": value}}
        await world.admin().refused(400, "POST", CALL, body, code="method_not_allowed")


async def test_a_killed_integration_is_an_error(world: World):
    """A killed integration causes a timeout, then an error, and works after a restart."""
    lamps = Lamps()
    body = {"exchange": {"lamps.integration.scan.depth": "4"}}
    async with world.dying(lamps):
        await own(world)
        lamps.answers.clear()
        calling = asyncio.ensure_future(world.admin().ask("POST", CALL, body))
        await lamps.reached.wait()
    late = await calling
    assert late.status_code == 504
    content = await world.admin().refused(503, "POST", CALL, body)
    assert content["error_message"] == "integration lamps is not running"
    async with world.hosting(Lamps()):
        assert await world.admin().done("POST", CALL, body) == {"found": 8}


async def test_users_change_granted_entities(world: World):
    """A grant of the entity suffices."""
    thing, key = await direct(world, "W-11")
    ids = await world.ids(thing)
    body = {"exchange": {f"{key}.on": True}}
    await world.user(8).refused(403, "POST", UPDATE, body, code="forbidden_permission")
    await world.admin("other").refused(400, "POST", UPDATE, body, field="exchange")
    world.grants.give(7, ResourceType.ENTITY, ids[f"{key}.level"])
    await world.user(7).refused(400, "POST", UPDATE, body, field="exchange")
    await world.user(7).done("POST", UPDATE, {"exchange": {f"{key}.level": 1}})
    world.grants.give(9, ResourceType.INTEGRATION, "direct")
    await world.user(9).done("POST", UPDATE, body)


@pytest.mark.parametrize("path", [UPDATE, CALL])
async def test_changing_needs_one_of_its_functions(world: World, path: str):
    """One function suffices; all others together do not."""
    needed = COMMAND_FUNCTIONS
    world.grants.give(7, ResourceType.DEVICE, 1)
    body = {"exchange": {"direct.device.nobody.on": 1}}
    others = [function for function in Function if function not in needed]
    await world.user(7, *others).refused(403, "POST", path, body)
    for function in needed:
        await world.user(7, function).refused(400, "POST", path, body, field="exchange")
