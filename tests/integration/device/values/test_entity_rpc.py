"""Entities by RPC, as flows read, write and call them."""

import asyncio
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from libs.common.bus.hops import HOPS_HEADER
from libs.common.bus.rpc import remote_error
from libs.common.contracts.entities import (
    CALL_SERVICE,
    ENTITY_VALUES,
    UPDATE_ENTITIES,
    CalledServices,
    CallServices,
    EntityUpdate,
    EntityValues,
    ReadEntities,
    UpdatedEntities,
    UpdateEntities,
    UpdateOutcome,
)
from libs.common.errors import InvalidInput, NotFound, UpstreamTimeout
from tests.integration.device.values.test_custom import body
from tests.integration.device.values.test_writing import direct
from tests.integration.device.values.world import World


async def write(world: World, exchange: dict[str, Any], hops: int = 0, tenant: str = "default"):
    """Set properties and return their keys."""
    wanted = EntityUpdate(tenant=tenant, exchange=exchange, hops=hops)
    (outcome,) = await write_all(world, wanted)
    if outcome.status:
        raise remote_error(outcome.status, outcome.code, outcome.error)
    return outcome.keys


async def write_all(world: World, *updates: EntityUpdate) -> list[UpdateOutcome]:
    """Send several updates in one request and return their outcomes."""
    return (
        await world.rpc(UPDATE_ENTITIES, UpdateEntities(list(updates)), UpdatedEntities)
    ).outcomes


async def read(world: World, *keys: str, tenant: str = "default") -> dict[str, Any]:
    """Return latest values."""
    return (await world.rpc(ENTITY_VALUES, ReadEntities(tenant, list(keys)), EntityValues)).values


async def custom(world: World, identifier: str) -> tuple[str, int]:
    """Create a custom property and return its key and thing."""
    made = await world.admin().done("POST", "/entity", body(identifier))
    return made["key"], int(made["id"]) // 8192


async def test_a_written_value_is_readable_immediately(world: World):
    """A custom entity has its value when the response arrives; unknown keys are left out."""
    key, _ = await custom(world, "rpc1")

    assert {key: None} == await read(world, key, "direct.device.nobody.on")
    assert [key] == await write(world, {key: "7"})
    assert {key: 7} == await read(world, key)
    assert await read(world, key, tenant="other") == {}


async def test_a_dry_run_only_checks(world: World):
    """A dry run reports the same errors as a write, and changes nothing."""
    key, _ = await custom(world, "dry")
    _, device = await direct(world, "DRY-1")
    commands = await world.database["commands"].count_documents({})

    def dry(**exchange: Any) -> EntityUpdate:
        return EntityUpdate(tenant="default", exchange=exchange, dry_run=True)

    outcomes = await write_all(
        world,
        dry(**{key: 7}),
        dry(**{key: "warm"}),
        dry(**{f"{device}.on": True}),
        dry(**{f"{device}.level": 101}),
    )
    assert [outcome.status for outcome in outcomes] == [0, 400, 0, 400]
    assert [outcome.keys for outcome in outcomes[::2]] == [[key], [f"{device}.on"]]
    assert await read(world, key) == {key: None}
    asked = CallServices(tenant="default", exchange={f"{device}.dim.to": 5}, dry_run=True)
    assert (await world.rpc(CALL_SERVICE, asked, CalledServices)).outputs == {}
    asked = CallServices(tenant="default", exchange={f"{device}.dim.to": 500}, dry_run=True)
    with pytest.raises(InvalidInput):
        await world.rpc(CALL_SERVICE, asked, CalledServices)
    assert await world.database["commands"].count_documents({}) == commands


async def test_flows_set_read_only_custom_entities(world: World):
    """Flows may set read-only custom properties; users may not."""
    made = await world.admin().done("POST", "/entity", {**body("computed"), "access_mod": "R"})
    key = made["key"]
    _, device = await direct(world, "H-3")

    assert [key] == await write(world, {key: 7})
    assert {key: 7} == await read(world, key)
    assert {key, f"{device}.on"} == set(
        await write(world, {key: 8, f"{device}.on": True, f"{device}.power": 1})
    )
    assert {key: 8} == await read(world, key)
    path = "/entity/property/update"
    await world.admin().refused(400, "POST", path, {"exchange": {key: 9}}, field="exchange")


async def test_the_event_has_the_hops_of_its_update(world: World):
    """The event has the hops of the update, or no header."""
    key, thing = await custom(world, "rpc2")
    subject = f"event.default.thing.{thing}.reported"
    for hops, expected in ((3, "3"), (0, None)):
        await write(world, {key: hops}, hops)
        event = await world.clients.bus.js.get_last_msg("EVENTS", subject)
        assert expected == (event.headers or {}).get(HOPS_HEADER)


async def test_updates_of_a_request_are_independent(world: World):
    """Each update of a request has its own outcome and hops."""
    one, first = await custom(world, "together1")
    two, second = await custom(world, "together2")
    lamp, device = await direct(world, "H-2")

    def update(exchange: dict[str, Any], hops: int = 0, tenant: str = "default") -> EntityUpdate:
        return EntityUpdate(tenant=tenant, exchange=exchange, hops=hops)

    outcomes = await write_all(
        world,
        update({one: 1}, 1),
        update({one: "warm", two: 5}),
        update({two: 2, "system.integration.nobody": 1}),
        update({f"{device}.on": True, f"{device}.power": 1}, 3),
        update({one: 3}, tenant="other"),
        update({two: 4}, 4),
        update({f"{device}.on": "perhaps"}),
    )

    assert [one.keys for one in outcomes] == [[one], [], [], [f"{device}.on"], [], [two], []]
    assert [one.status for one in outcomes] == [0, 400, 404, 0, 404, 0, 400]
    assert outcomes[1].code == "multiple_error"
    assert "nobody" in outcomes[2].error
    assert {one: 1, two: 4} == await read(world, one, two)
    for thing, hops in ((first, "1"), (second, "4")):
        subject = f"event.default.thing.{thing}.reported"
        event = await world.clients.bus.js.get_last_msg("EVENTS", subject)
        assert hops == event.headers[HOPS_HEADER]
    command = await world.database["commands"].find_one({"thingId": lamp})
    assert command["hops"] == 3


async def test_a_device_confirms_with_the_hops_of_its_command(world: World):
    """The event of a confirmation has the hops of its command."""
    thing, key = await direct(world, "H-1")
    async with world.device_answers("H-1"):
        assert [f"{key}.on"] == await write(world, {f"{key}.on": True}, hops=2)

        async def confirmed() -> bool:
            return bool(await world.foundation.values.find_values([thing]))

        await world.until(confirmed)

    async def told() -> bool:
        subject = f"event.default.device.{thing}.reported"
        try:
            event = await world.clients.bus.js.get_last_msg("EVENTS", subject)
        except NotFoundError:
            return False
        return bool((event.headers or {}).get(HOPS_HEADER) == "2")

    await world.until(told)
    assert {f"{key}.on": True} == await read(world, f"{key}.on")


async def test_an_unknown_key_or_invalid_value_is_named(world: World):
    """One unknown key or invalid value rejects the update."""
    key, _ = await custom(world, "rpc3")
    with pytest.raises(NotFound, match="nobody"):
        await write(world, {key: 1, "direct.device.nobody.on": 1})
    with pytest.raises(NotFound, match=key):
        await write(world, {key: 1}, tenant="other")
    with pytest.raises(InvalidInput, match="LONG"):
        await write(world, {key: "warm"})
    assert {key: None} == await read(world, key)


async def test_a_call_of_an_offline_device_is_an_error(world: World):
    """A call of an offline device is an error, and is queued for the device."""
    _, key = await direct(world, "C-3")
    wanted = CallServices(tenant="default", exchange={f"{key}.dim.to": 5})
    with pytest.raises(UpstreamTimeout, match="C-3 cannot receive the call now"):
        await world.rpc(CALL_SERVICE, wanted, CalledServices)


async def test_calls_do_not_wait_for_one_another(world: World):
    """A silent device does not delay a later call of another device."""
    _, silent = await direct(world, "C-1")
    _, quick = await direct(world, "C-2")
    await world.online("C-1")
    ended: list[str] = []

    async def call(key: str) -> dict[str, Any]:
        wanted = CallServices(tenant="default", exchange={f"{key}.dim.to": 5})
        try:
            return (await world.rpc(CALL_SERVICE, wanted, CalledServices)).outputs
        finally:
            ended.append(key)

    waiting = asyncio.ensure_future(call(silent))
    async with world.device_answers("C-2", outputs={"was": 1}):
        assert await call(quick) == {"was": 1}
    with pytest.raises(UpstreamTimeout):
        await waiting
    assert [quick, silent] == ended
