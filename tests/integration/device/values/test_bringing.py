"""What integrations bring by themselves, and the secrets that people entrust to them."""

import asyncio

import msgspec
import pytest

from libs.common.bus import RpcClient
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
)
from libs.common.contracts.integrations import (
    MISSING_SETTING_CODE,
    Manifest,
    NewDevice,
    PropertiesUpdated,
)
from libs.common.errors import Conflict, InvalidInput, UpstreamFailed
from libs.common.integrations import IntegrationThings
from tests.integration.device.values.world import LAMP, Lamps, World, property_of

VAULT = Manifest(
    id="vault",
    name="Vault",
    tsl={
        "version": "v1.0",
        "properties": [property_of("url", "STRING"), property_of("token", "STRING", "W")],
        "events": [],
        "services": [],
    },
)


def things(world: World, integration: str = "lamps") -> IntegrationThings:
    return IntegrationThings(RpcClient(world.outside), integration)


def found(sn: str, **more) -> NewDevice:
    return NewDevice(identifier=sn, model="FOUND-1", tsl=LAMP, **more)


async def test_an_integration_brings_a_device_in(world: World, lamps: Lamps):
    """With its product, as if people had added it; again it only gets name and data."""
    brought = await things(world).put_device("default", "first", found("P-1", additional={"a": 1}))
    device = await world.device("P-1")
    assert (brought.device_id, brought.identifier, brought.model) == (
        device["_id"],
        "P-1",
        "FOUND-1",
    )
    assert (device["integration"], device["name"]) == ("lamps", "first")
    assert "userId" not in device
    again = await things(world).put_device("default", "second", found("P-1", additional={"a": 2}))
    assert (again.device_id, again.name, again.additional) == (device["_id"], "second", {"a": 2})
    detail = await world.admin().done("GET", f"/device/{device['_id']}")
    assert detail["key"] == "lamps.device.P-1"


async def test_an_integration_cannot_take_over_devices(world: World, lamps: Lamps):
    """This concerns devices of other integrations and of other tenants."""
    await world.add_direct("P-2", "generic")
    with pytest.raises(Conflict, match="P-2"):
        await things(world).put_device("default", "x", found("P-2"))
    await things(world).put_device("default", "x", found("P-3"))
    with pytest.raises(Conflict, match="P-3"):
        await things(world).put_device("other", "x", found("P-3"))


async def test_an_invalid_device_of_an_integration_is_rejected(world: World, lamps: Lamps):
    """The identifier is invalid, or the product does not exist."""
    with pytest.raises(UpstreamFailed, match="identifier"):
        await things(world).put_device("default", "x", found("a@b"))
    wanted = NewDevice(identifier="P-4", model="NOWHERE")
    with pytest.raises(InvalidInput, match="NOWHERE"):
        await things(world).put_device("default", "x", wanted)
    assert await world.device("P-4") is None


async def test_a_repeated_report_is_stored_once(world: World, lamps: Lamps):
    """Its id identifies it. Reports without an id are all stored."""
    await things(world).put_device("default", "x", found("P-5"))
    for level, name in ((1, "r1"), (1, "r1"), (2, "r2"), (3, None), (3, None)):
        await things(world).report("default", "P-5", {"level": level}, report_id=name)
    device = await world.device("P-5")
    ids = await world.ids(device["_id"])
    asked = {"entity_id": ids["lamps.device.P-5.level"], "page_size": 100, "page_number": 1}

    async def stored() -> bool:
        page = await world.admin().done("POST", "/entity/history/search", asked)
        return sorted(row["value"] for row in page["content"]) == [1, 2, 3, 3]

    await world.until(stored)


async def test_a_secret_goes_to_the_integration_alone(world: World):
    """It is neither stored, nor told to listeners, nor shown; what is no secret is."""
    said: list[bytes] = []

    async def hear(message) -> None:
        said.append(message.data)

    listening = await world.outside.client.subscribe("event.>", cb=hear)
    await world.outside.client.flush()
    vault = Lamps(manifest=VAULT)
    async with world.hosting(vault):
        assert (await things(world, "vault").get_own_values("default")).properties == {}
        exchange = {"vault.integration.url": "u", "vault.integration.token": "s3cr3t-77"}
        await world.admin().done("POST", "/entity/property/update", {"exchange": exchange})
        (change,) = vault.asked
        assert isinstance(change, PropertiesUpdated)
        assert change.properties == {"url": "u", "token": "s3cr3t-77"}
        assert (await things(world, "vault").get_own_values("default")).properties == {"url": "u"}
        detail = await world.admin().done("POST", "/entity/search", {"page_size": 999})
        assert "s3cr3t-77" not in msgspec.json.encode(detail).decode()
    async with asyncio.timeout(30):
        while not any(b'"url":"u"' in one for one in said):
            await asyncio.sleep(0.02)
    await listening.unsubscribe()
    assert not any(b"s3cr3t-77" in one for one in said)
    for name in await world.database.list_collection_names():
        async for document in world.database[name].find():
            assert "s3cr3t-77" not in str(document), name


async def test_an_empty_secret_stays_as_it_is(world: World):
    """A form that shows no secret sends it empty; what is beside it is set."""
    vault = Lamps(manifest=VAULT)
    async with world.hosting(vault):
        await things(world, "vault").get_own_values("default")
        for empty in ("", None):
            exchange = {"vault.integration.url": f"u{empty}", "vault.integration.token": empty}
            await world.admin().done("POST", "/entity/property/update", {"exchange": exchange})
            exchange.pop("vault.integration.url")
            await world.admin().done("POST", "/entity/property/update", {"exchange": exchange})
        assert [change.properties for change in vault.asked] == [{"url": "u"}, {"url": "uNone"}]
    asked = DescribeIntegrationEntities("default", "vault")
    found = await RpcClient(world.outside).call(INTEGRATION_ENTITIES, asked, ThingEntities)
    attributes = {entity.key: entity.value_attribute for entity in found.entities}
    assert attributes["vault.integration.token"] == {"optional": True}  # or the form insists


async def test_a_secret_for_nobody_is_an_error(world: World):
    """It is kept nowhere, so people are told that it did not arrive."""
    async with world.hosting(Lamps(manifest=VAULT)):
        await things(world, "vault").get_own_values("default")
    body = {"exchange": {"vault.integration.token": "s3cr3t"}}
    await world.admin().refused(503, "POST", "/entity/property/update", body)


async def test_a_rejected_update_with_a_secret_changes_nothing(world: World):
    """The other values apply only if the integration accepts them all."""
    vault = Lamps(manifest=VAULT)
    async with world.hosting(vault):
        await things(world, "vault").get_own_values("default")
        exchange = {"vault.integration.url": "first", "vault.integration.token": "s3cr3t"}
        await world.admin().done("POST", "/entity/property/update", {"exchange": exchange})
        vault.fails = InvalidInput("is no address of ours", field="url")
        body = {"exchange": exchange | {"vault.integration.url": "second"}}
        await world.admin().refused(
            400,
            "POST",
            "/entity/property/update",
            body,
            field="exchange.vault.integration.url",
        )
        kept = await things(world, "vault").get_own_values("default")
        assert kept.properties == {"url": "first"}


async def test_a_rejection_of_an_integration_names_the_property(world: World, lamps: Lamps):
    """The error has the key of the property, and a text that consoles know."""
    body = {"exchange": {"lamps.integration.scan.depth": 1}}
    path, key = "/entity/service/call", "lamps.integration.period"
    lamps.fails = InvalidInput("is not set", field="period", code=MISSING_SETTING_CODE)
    refused = await world.admin().refused(
        400, "POST", path, body, field=f"exchange.{key}", code="multiple_error"
    )
    (fault,) = refused["data"]
    assert (fault["error_code"], fault["args"]["entity_key"]) == ("entity_value_null", key)
    lamps.fails = InvalidInput("10.0.0.1 is not a public address", field="period")
    refused = await world.admin().refused(400, "POST", path, body, field=f"exchange.{key}")
    (fault,) = refused["data"]
    assert fault["args"]["format"] == "10.0.0.1 is not a public address"
    lamps.fails = InvalidInput("is not there", field="x")
    refused = await world.admin().refused(
        400, "POST", path, body, field="exchange", code="gateway_respond_error"
    )
    assert refused["data"] == {"error": "x: is not there"}
