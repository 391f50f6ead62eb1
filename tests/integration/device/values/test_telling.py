"""What integrations tell and ask."""

from typing import Any

import pytest

from libs.common.bus import EVENTS, RpcClient
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.integrations import IntegrationThings
from tests.integration.device.values.test_adding import lamp
from tests.integration.device.values.world import LAMP, Lamps, World


def things(world: World, integration: str = "lamps") -> IntegrationThings:
    """What an integration says, on a connection of its own."""
    return IntegrationThings(RpcClient(world.outside), integration)


async def latest(world: World, sn: str) -> dict[str, Any]:
    """The latest values of a device."""
    device = await world.device(sn)
    return (await world.foundation.values.find_values([device["_id"]])).get(device["_id"], {})


async def test_a_device_reports_through_its_integration(world: World, lamps: Lamps):
    """As if it had said so itself: stored, and ONLINE from then on."""
    await world.admin().done("POST", "/device", lamp("T-1"))
    await things(world).report("default", "T-1", {"on": True, "level": 5})

    async def reported() -> bool:
        return await latest(world, "T-1") == {"on": True, "level": 5}

    async def online() -> bool:
        return bool((await world.device("T-1"))["connectStatus"] == "ONLINE")

    await world.until(reported)
    await world.until(online)
    await things(world).send_event("default", "T-1", "alarm", {"heat": 90})
    device = await world.device("T-1")
    ids = await world.ids(device["_id"])
    asked = {"entity_id": ids["lamps.device.T-1.alarm.heat"]}

    async def told() -> bool:
        rows = await world.admin().done("POST", "/entity/history/search", asked)
        return [row["value"] for row in rows] == [90]

    await world.until(told)


async def test_invalid_reports_are_rejected_immediately(world: World, lamps: Lamps):
    """A completely rejected report or event does not reach the stream."""
    await world.admin().done("POST", "/device", lamp("T-2"))
    with pytest.raises(InvalidInput, match=r"properties\.level"):
        await things(world).report("default", "T-2", {"level": 101})
    with pytest.raises(InvalidInput, match="ts"):
        await things(world).report("default", "T-2", {"level": 1}, ts=1)
    with pytest.raises(InvalidInput, match="eventId"):
        await things(world).send_event("default", "T-2", "nobody", {})
    with pytest.raises(InvalidInput, match="commandId"):
        await things(world).send_reply("default", "T-2", "x", "SUCCESS")
    assert await latest(world, "T-2") == {}


async def test_an_integration_can_only_report_for_its_own_devices(world: World, lamps: Lamps):
    """Devices of other integrations and tenants, and unknown devices, are rejected."""
    await world.put_product("LAMP", LAMP)
    await world.add_direct("T-3", "LAMP")
    await world.admin().done("POST", "/device", lamp("T-4"))
    for who, tenant, sn in (
        ("lamps", "default", "T-3"),
        ("lamps", "other", "T-4"),
        ("nobody", "default", "T-4"),
        ("lamps", "default", "T-none"),
    ):
        with pytest.raises(NotFound):
            await things(world, who).report(tenant, sn, {"on": True})
        with pytest.raises(NotFound):
            await things(world, who).get_tsl(tenant, sn)
        with pytest.raises(NotFound):
            await things(world, who).send_reply(tenant, sn, 5, "SUCCESS")
    with pytest.raises(NotFound):
        await things(world, "nobody").get_own_values("default")


async def test_an_integration_can_list_its_devices_with_their_tsl(world: World, lamps: Lamps):
    """The list has the devices of all tenants, with the data that it stores for them."""
    for tenant, sn in (("default", "T-5"), ("other", "T-6")):
        await world.admin(tenant).done("POST", "/device", lamp(sn, channel=3))
    found = {device.identifier: device async for device in things(world).list_devices()}
    assert {found[sn].tenant for sn in ("T-5", "T-6")} == {"default", "other"}
    assert found["T-5"].additional == {"channel": 3}
    assert found["T-5"].model == "LAMP"
    assert all(entry.identifier != "T-3" for entry in found.values())
    tsl = await things(world).get_tsl("other", "T-6")
    assert [one["id"] for one in tsl["properties"]][:2] == ["on", "level"]


async def test_an_integration_reports_and_reads_its_own_values(world: World, lamps: Lamps):
    """In force when the call returns, per tenant, and told as an event of its thing."""
    own = things(world)
    before = await own.get_own_values("own")
    await own.report_own("own", {"state": "idle", "period": 9})
    values = await own.get_own_values("own")
    assert (before.properties, values.properties) == ({}, {"state": "idle", "period": 9})
    assert values.thing_id == before.thing_id
    assert (await own.get_own_values("another")).properties == {}
    with pytest.raises(InvalidInput, match="period"):
        await own.report_own("own", {"period": 1000})
    event = await world.clients.bus.js.get_last_msg(
        EVENTS, f"event.own.thing.{values.thing_id}.reported"
    )
    assert b'"thingKey":"lamps.integration"' in event.data


async def test_the_entities_of_an_integration_are_there_when_asked_for(world: World, lamps: Lamps):
    """Parents before their children, ids that stay; none of an integration nobody knows."""
    wanted = DescribeIntegrationEntities("fresh", "lamps")
    found = await world.rpc(INTEGRATION_ENTITIES, wanted, ThingEntities)
    keys = [entity.key.removeprefix("lamps.integration.") for entity in found.entities]
    at = keys.index("add_lamp")
    assert keys[at + 1 : at + 3] == ["add_lamp.serial", "add_lamp.channel"]
    again = await world.rpc(INTEGRATION_ENTITIES, wanted, ThingEntities)
    assert [entity.id for entity in again.entities] == [entity.id for entity in found.entities]
    nobody = DescribeIntegrationEntities("fresh", "nobody")
    assert await world.rpc(INTEGRATION_ENTITIES, nobody, ThingEntities) == ThingEntities([])


async def test_a_new_version_of_an_integration_keeps_the_ids(world: World, lamps: Lamps):
    """Kept entities keep their ids, new ones get new ids, and removed ones are not found."""
    wanted = DescribeIntegrationEntities("versions", "lamps")
    old = await world.rpc(INTEGRATION_ENTITIES, wanted, ThingEntities)
    properties = [
        {"id": "fresh", "accessMode": "R", "dataSpec": {"dataType": "BOOL"}},
        lamps.manifest.tsl["properties"][0],
    ]
    tsl = {**lamps.manifest.tsl, "properties": properties}
    manifest = type(lamps.manifest)(id="lamps", name="Lamps", tsl=tsl)
    kept = world.announced.manifests["lamps"]
    await world.announced.save(manifest)
    new = await world.rpc(INTEGRATION_ENTITIES, wanted, ThingEntities)
    await world.announced.save(kept)
    ids = {entity.key: entity.id for entity in old.entities}
    found = {entity.key: entity.id for entity in new.entities}
    assert found["lamps.integration.period"] == ids["lamps.integration.period"]
    assert found["lamps.integration.fresh"] not in ids.values()
    assert "lamps.integration.state" not in found


@pytest.mark.parametrize("tenant", ["", "a.b", "*", ">", "a b", "x" * 65])
async def test_a_tenant_is_a_token_of_a_subject(world: World, lamps: Lamps, tenant: str):
    """Anything else is refused before a thing is made for it."""
    with pytest.raises(InvalidInput, match="tenant"):
        await things(world).report_own(tenant, {"period": 9})
    with pytest.raises(InvalidInput, match="tenant"):
        await things(world).get_own_values(tenant)
    assert await world.database["things"].find_one({"tenant": tenant}) is None
