"""Devices are added and deleted through their integrations."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from libs.common.bus import RpcClient
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import (
    INTEGRATION_ENTITIES,
    DescribeIntegrationEntities,
    ThingEntities,
)
from libs.common.errors import Conflict
from libs.common.identity.functions import Function
from libs.common.integrations import client
from tests.console import User
from tests.integration.device.values.world import LAMP, MANIFEST, Lamps, World

OWN = "lamps.integration.add_lamp"


def lamp(serial: str, name: str = "Lamp", **params):
    """Body of `POST /device`."""
    given = {f"{OWN}.{key}": value for key, value in ({"serial": serial} | params).items()}
    return {"name": name, "integration": "lamps", "param_entities": given}


async def test_an_integration_names_the_device_that_is_added(world: World, lamps: Lamps):
    """Parameters come as text and arrive as the TSL has them; the product comes along."""
    await world.admin().done("POST", "/device", lamp("L-1", channel="4"))
    (asked,) = lamps.asked
    assert asked.params == {"serial": "L-1", "channel": 4}
    assert (asked.tenant, asked.user_id, asked.name) == ("default", 1, "Lamp")
    device = await world.device("L-1")
    assert device["integration"] == "lamps"
    assert device["userId"] == 1
    assert device["application"] is None
    assert device["model"] == "LAMP"
    detail = await world.admin().done("GET", f"/device/{device['_id']}")
    assert detail["additional_data"] == {"channel": 4}
    assert detail["integration_name"] == "Lamps"
    keys = [entity["key"] for entity in detail["entities"]]
    assert "lamps.device.L-1.wifi.ssid" in keys


async def test_adding_again_is_a_conflict(world: World, lamps: Lamps):
    """Nothing of the device that there is changes; the input that names it is at fault."""
    await world.admin().done("POST", "/device", lamp("L-2"))
    before = await world.device("L-2")
    for serial in ("L-2", "l-2"):
        await world.admin().refused(
            409,
            "POST",
            "/device",
            lamp(serial, "Lamp again", channel=2),
            code="duplicated_device_eui",
            field=f"param_entities.{OWN}.serial",
        )
    assert await world.device("L-2") == before


async def test_one_of_two_equal_additions_is_rejected(world: World, lamps: Lamps):
    """This holds for simultaneous requests, too."""
    adding = (world.admin().ask("POST", "/device", lamp("L-11", name)) for name in ("a", "b", "c"))
    statuses = sorted([one.status_code for one in await asyncio.gather(*adding)])
    assert statuses == [200, 409, 409]


@pytest.mark.parametrize("serial", ["L-3"])
async def test_an_identifier_of_another_is_a_conflict(world: World, lamps: Lamps, serial: str):
    """SNs are unique on the platform: other integrations and tenants cannot take them."""
    await world.add_direct(serial)
    field, code = f"param_entities.{OWN}.serial", "duplicated_device_eui"
    await world.admin().refused(409, "POST", "/device", lamp(serial), code=code, field=field)
    own = "direct.integration.add_device"
    body = {"name": "x", "integration": "direct", "param_entities": {f"{own}.sn": serial}}
    field = f"param_entities.{own}.sn"
    await world.admin("other").refused(409, "POST", "/device", body, code=code, field=field)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, f"{OWN}.serial"),
        ({f"{OWN}.serial": None}, f"{OWN}.serial"),
        ({f"{OWN}.serial": "ab"}, f"{OWN}.serial"),
        ({f"{OWN}.serial": {"a": 1}}, f"{OWN}.serial"),
        ({f"{OWN}.serial": "abc", f"{OWN}.channel": "four"}, f"{OWN}.channel"),
        ({f"{OWN}.serial": "abc", f"{OWN}.channel": "10"}, f"{OWN}.channel"),
        ({f"{OWN}.serial": "abc", f"{OWN}.channel": 1.5}, f"{OWN}.channel"),
        ({f"{OWN}.serial": "abc", f"{OWN}.colour": "red"}, f"{OWN}.colour"),
        ({f"{OWN}.serial": "abc", "serial": "abc"}, "serial"),
        ({f"{OWN}.serial": "used"}, f"{OWN}.serial"),
    ],
)
async def test_wrong_parameters_are_named(world: World, lamps: Lamps, params, field):
    """400 names the key, whether the TSL or the integration refuses it."""
    body = {"name": "x", "integration": "lamps", "param_entities": params}
    await world.admin().refused(400, "POST", "/device", body, field=f"param_entities.{field}")
    assert await world.device("abc") is None


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "name"),
        (lamp("abc") | {"name": ""}, 400, "name"),
        (lamp("abc") | {"name": 5}, 400, "name"),
        (lamp("abc") | {"integration": None}, 400, "integration"),
        (lamp("abc") | {"param_entities": []}, 400, "param_entities"),
        (lamp("abc") | {"integration": "nobody"}, 404, "integration"),
        (lamp("abc") | {"integration": "system"}, 400, "integration"),
    ],
)
async def test_wrong_bodies_are_named(world: World, lamps: Lamps, body, status, field):
    """Also an integration that there never was, and one that adds no devices."""
    await world.admin().refused(status, "POST", "/device", body, field=field)
    assert lamps.asked == []


async def test_a_blank_parameter_that_is_optional_does_not_count(world: World, lamps: Lamps):
    """Consoles send the empty text for what nobody filled in, and the service's own key."""
    body = lamp("L-4", channel="")
    body["param_entities"][OWN] = {}
    await world.admin().done("POST", "/device", body)
    assert lamps.asked[0].params == {"serial": "L-4"}


@pytest.mark.parametrize("serial", ["no spaces", "~55", "a/b", "x" * 65])
async def test_an_integration_cannot_name_a_device_that_cannot_be(
    world: World, lamps: Lamps, serial: str
):
    """The mistake is the integration's: 502, and nothing is added."""
    await world.admin().refused(502, "POST", "/device", lamp(serial))
    assert await world.device(serial) is None


async def test_a_direct_device_with_a_wrong_sn_or_model_is_a_400(world: World):
    """There the person at the console gave them."""
    own = "direct.integration.add_device"
    body = {"name": "x", "integration": "direct", "param_entities": {f"{own}.sn": "a b"}}
    await world.admin().refused(400, "POST", "/device", body, field=f"param_entities.{own}.sn")
    body["param_entities"] = {f"{own}.sn": "fine", f"{own}.model": "UNKNOWN"}
    await world.admin().refused(400, "POST", "/device", body, field=f"param_entities.{own}.model")
    assert await world.device("fine") is None


async def test_the_user_who_adds_a_direct_device_can_read_its_key(world: World):
    """Only its detail and its list of entities show the key, as existing consoles expect."""
    own = "direct.integration.add_device"
    body = {"name": "x", "integration": "direct", "param_entities": {f"{own}.sn": "K-1"}}
    adder = world.user(9, Function.DEVICE_ADD, Function.DEVICE_VIEW)
    world.grants.give(9, ResourceType.INTEGRATION, "direct")
    await adder.done("POST", "/device", body)
    path = f"/device/{(await world.device('K-1'))['_id']}"
    assert (await world.admin().done("GET", path))["entities"] == []
    assert (await adder.ask("HEAD", path)).status_code == 200
    device_id = path.removeprefix("/device/")
    assert await listed(world.admin(), device_id) == ([], 0)
    assert "K-1" not in world.keys

    (row,) = (await adder.done("GET", path))["entities"]
    key = world.keys["K-1"]
    assert (row["key"], row["value_attribute"]) == (key, {})
    assert await listed(adder, device_id) == ([key], 0)
    assert await listed(adder, device_id, types=["PROPERTY", "EVENT"]) == ([key], 0)
    assert await listed(adder, device_id, types=["EVENT"]) == ([], 0)
    assert await listed(adder, device_id, page_number=2) == ([], 0)
    assert (await listed(adder, device_id, ENTITY_NAME="x"))[0] == []
    assert (await adder.done("GET", path))["entities"][0]["key"] == key
    assert await listed(world.admin(), device_id) == ([], 0)
    world.shown_keys.clear()  # the device has logged in
    assert (await adder.done("GET", path))["entities"] == []
    assert await listed(adder, device_id) == ([], 0)


async def listed(
    user: User, device_id: str, types: Sequence[str] = (), page_number: int = 1, **columns: str
) -> tuple[list[str], int]:
    """The keys that are shown among the entities of a device, and how many entities it has."""
    wanted = {name: {"operator": "EQ", "values": [text]} for name, text in columns.items()}
    wanted["DEVICE_ID"] = {"operator": "EQ", "values": [device_id]}
    if types:
        wanted["ENTITY_TYPE"] = {"operator": "ANY_EQUALS", "values": [*types]}
    body = {"page_size": 10, "page_number": page_number, "entity_filter": wanted}
    page = await user.done("POST", "/entity/advanced-search", body)
    rows = [row for row in page["content"] if row["entity_name"].startswith("Device key")]
    assert all(row["entity_latest_value"] == row["entity_key"] for row in rows)
    return [row["entity_key"] for row in rows], page["total"]


async def test_an_issued_key_stays(world: World):
    """A user who issued one before opening the device sees none."""
    own = "direct.integration.add_device"
    body = {"name": "x", "integration": "direct", "param_entities": {f"{own}.sn": "K-2"}}
    await world.admin().done("POST", "/device", body)
    path = f"/device/{(await world.device('K-2'))['_id']}"
    issued = await world.admin().done("POST", f"{path}/credentials", {})
    assert (await world.admin().done("GET", path))["entities"] == []
    assert issued["key"] == world.keys["K-2"]


async def test_the_form_for_a_device_of_ours_offers_the_products(world: World):
    """By model with its name, the built-in one first; other parameters are as the TSL has them."""
    await world.put_product("LAMP-X", LAMP)
    asked = DescribeIntegrationEntities("default", "direct")
    rpc = RpcClient(world.outside)
    found = await rpc.call(INTEGRATION_ENTITIES, asked, ThingEntities)
    inputs = {entity.key.rpartition(".")[2]: entity.value_attribute for entity in found.entities}
    first = next(iter(inputs["model"]["enum"].items()))
    assert first == ("generic", "Generic device (generic)")
    assert "LAMP-X" in inputs["model"]["enum"]
    assert inputs["model"]["optional"] is True
    assert "enum" not in inputs["sn"]


async def test_a_model_without_a_product_and_a_tsl_is_the_integrations_mistake(world: World):
    """502, and nothing is added."""
    lamps = Lamps(manifest=MANIFEST, model="MISSING", tsl=None)
    async with world.hosting(lamps):
        await world.admin().refused(502, "POST", "/device", lamp("L-5"))
    broken = Lamps(manifest=MANIFEST, model="BROKEN", tsl={"properties": [{}]})
    async with world.hosting(broken):
        await world.admin().refused(502, "POST", "/device", lamp("L-5"))
    assert await world.device("L-5") is None


async def test_an_integration_without_a_model_leaves_it_to_the_prefix(world: World):
    """As for devices that applications add."""
    async with world.hosting(Lamps(model="")):
        await world.admin().done("POST", "/device", lamp("L-6"))
    assert (await world.device("L-6"))["model"] == "generic"


async def test_an_integration_that_ends_during_an_add_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """A clear error when the time is over; with the integration back, the same add works."""
    monkeypatch.setattr(client, "DEVICE_TIMEOUT_SECONDS", 0.5)
    lamps = Lamps()
    lamps.answers.clear()
    async with world.dying(lamps):
        adding = asyncio.ensure_future(world.admin().ask("POST", "/device", lamp("L-7")))
        await lamps.reached.wait()
    refused = await adding
    assert refused.status_code == 504, refused.text
    assert "lamps" in refused.json()["error_message"]
    assert await world.device("L-7") is None
    await world.admin().refused(503, "POST", "/device", lamp("L-7"))  # still counts as there
    world.announced.silent.add("lamps")
    content = await world.admin().refused(503, "POST", "/device", lamp("L-7"))
    assert content["error_message"] == "integration lamps is not running"
    world.announced.silent.clear()
    async with world.hosting(Lamps()):
        await world.admin().done("POST", "/device", lamp("L-7"))
    assert await world.device("L-7") is not None


async def test_an_integration_that_fails_leaves_nothing(world: World, lamps: Lamps):
    """Whatever it fails with, what was asked for is not there."""
    for error, status in ((RuntimeError("oops"), 502), (Conflict("taken"), 409)):
        lamps.fails = error
        await world.admin().refused(status, "POST", "/device", lamp("L-8"))
    assert await world.device("L-8") is None


async def test_adding_needs_the_grant_of_the_integration(world: World, lamps: Lamps):
    """A user without it learns nothing of which integrations there are."""
    user = world.user(7)
    for integration in ("lamps", "nobody"):
        body = lamp("L-9") | {"integration": integration}
        await user.refused(403, "POST", "/device", body, code="forbidden_permission")
    world.grants.give(7, ResourceType.INTEGRATION, "lamps")
    await user.done("POST", "/device", lamp("L-9"))
    assert (await world.device("L-9"))["userId"] == 7


@pytest.mark.parametrize(
    ("path", "body", "needed"),
    [
        ("/device", lamp("abc"), Function.DEVICE_ADD),
        ("/device/batch-delete", {"device_id_list": []}, Function.DEVICE_DELETE),
    ],
)
async def test_operations_need_their_function(world: World, path, body, needed):
    """All other functions together do not do."""
    others = [function for function in Function if function is not needed]
    await world.user(7, *others).refused(403, "POST", path, body, code="forbidden_permission")


async def test_a_device_goes_when_its_integration_has_let_it_go(world: World, lamps: Lamps):
    """Key, values and grants go with it; unknown ids are passed over."""
    await world.admin().done("POST", "/device", lamp("L-10"))
    device = await world.device("L-10")
    await world.admin().done("POST", f"/device/{device['_id']}/credentials")
    world.grants.give(7, ResourceType.DEVICE, device["_id"])
    ids = [str(device["_id"]), "99999999", str(device["_id"])]
    await world.user(7).done("POST", "/device/batch-delete", {"device_id_list": ids})
    assert await world.device("L-10") is None
    assert lamps.asked[-1].identifier == "L-10"
    assert "L-10" not in world.keys
    assert world.grants.held(7) == set()


async def test_a_device_that_its_integration_keeps_stays(
    world: World, lamps: Lamps, monkeypatch: pytest.MonkeyPatch
):
    """A refusal or silence of the integration is told, and the device is still there."""
    await world.admin().done("POST", "/device", lamp("L-99"))
    device = await world.device("L-99")
    body = {"device_id_list": [device["_id"]]}
    lamps.fails = Conflict("it is in use")
    await world.admin().refused(409, "POST", "/device/batch-delete", body)
    lamps.answers.clear()
    monkeypatch.setattr(client, "DEVICE_TIMEOUT_SECONDS", 0.3)
    await world.admin().refused(504, "POST", "/device/batch-delete", body)
    lamps.answers.set()
    assert await world.device("L-99") is not None
    world.announced.silent.add("lamps")  # it is gone: nobody is asked
    await world.admin().done("POST", "/device/batch-delete", body)
    assert await world.device("L-99") is None


async def test_an_integration_without_a_delete_service_keeps_its_devices(world: World):
    """Nothing is deleted, not even the devices of others that were named first."""
    other = await world.add_direct("L-12")
    keeper = msgspec.structs.replace(MANIFEST, delete_device_service=None)
    async with world.hosting(Lamps(manifest=keeper)):
        await world.admin().done("POST", "/device", lamp("L-13"))
        device = await world.device("L-13")
        body = {"device_id_list": [other, device["_id"]]}
        await world.admin().refused(
            400,
            "POST",
            "/device/batch-delete",
            body,
            code="method_not_allowed",
            field="device_id_list",
        )
        found = await world.admin().done("POST", "/device/search", {"identifier": "L-13"})
        assert found["content"][0]["deletable"] is False
    assert await world.device("L-12") is not None


async def test_invisible_devices_cannot_be_deleted(world: World, lamps: Lamps):
    """Other tenants and users without a grant delete nothing and learn nothing."""
    await world.admin().done("POST", "/device", lamp("L-14"))
    device = await world.device("L-14")
    body = {"device_id_list": [device["_id"]]}
    for user in (world.admin("other"), world.user(7)):
        await user.done("POST", "/device/batch-delete", body)
    assert await world.device("L-14") is not None
    assert len(lamps.asked) == 1


@pytest.mark.parametrize("ids", [None, "5", [None], ["x"], [-1], [0.5], list(range(1, 1002))])
async def test_wrong_ids_are_named(world: World, ids):
    """400 names the list or its element."""
    content = await world.admin().refused(
        400, "POST", "/device/batch-delete", {"device_id_list": ids}
    )
    assert content["detail_message"].startswith("device_id_list")
