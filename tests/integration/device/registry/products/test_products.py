"""Products: what is kept, what is refused, and what devices forbid."""

from typing import Any

import pytest

from services.device.migrations import _restore_member_ids
from services.device.things.specifications import TslStore
from tests.integration.device.registry.devices.platform import Platform, together, tsl


async def test_a_product_is_read_as_it_was_put(platform: Platform) -> None:
    """A new product is readable with its TSL, normalised."""
    put = await platform.mine.put_product(
        "TH-1", tsl(), name="Sensor", snPrefixes=["67aB"], deviceType="SUB_DEVICE"
    )
    assert put["versions"] == ["v1.0"]
    got = await platform.mine.done("GET", "/products/TH-1")
    assert got["model"] == "TH-1"
    assert got["name"] == "Sensor"
    assert got["snPrefixes"] == ["67AB"]
    assert got["deviceType"] == "SUB_DEVICE"
    assert got["currentVersion"] == "v1.0"
    assert got["tsl"]["properties"][0]["propertyKey"] == "temperature"


async def test_the_same_put_again_changes_nothing(platform: Platform) -> None:
    """PUT is idempotent, also with the TSL that GET answered, and while a device uses it."""
    first = await platform.mine.put_product("TH-1", tsl())
    await platform.mine.add("SN1", model="TH-1")
    got = await platform.mine.done("GET", "/products/TH-1")
    assert await platform.mine.put_product("TH-1", tsl()) == first
    assert await platform.mine.put_product("TH-1", got["tsl"]) == first


async def test_a_new_version_is_current_for_new_devices(platform: Platform) -> None:
    """Versions stand side by side: old devices keep theirs."""
    await platform.mine.put_product("TH-1", tsl("v1.0"))
    old = await platform.mine.add("SN1", model="TH-1")
    put = await platform.mine.put_product("TH-1", tsl("v2.0", min=0, max=1))
    assert put["versions"] == ["v1.0", "v2.0"]
    assert put["currentVersion"] == "v2.0"
    new = await platform.mine.add("SN2", model="TH-1")
    versions = [
        (await platform.mine.done("GET", f"/devices/{device}/thing-specification"))["version"]
        for device in (old, new)
    ]
    assert versions == ["v1.0", "v2.0"]


async def test_a_changed_version_is_replaced_while_no_device_uses_it(platform: Platform) -> None:
    """Nobody relies on the content yet."""
    await platform.mine.put_product("TH-1", tsl())
    await platform.mine.put_product("TH-1", tsl(min=0, max=1))
    got = await platform.mine.done("GET", "/products/TH-1")
    assert got["tsl"]["properties"][0]["dataSpec"]["validator"] == {"min": 0, "max": 1}
    assert got["versions"] == ["v1.0"]


async def test_a_changed_version_is_refused_while_devices_use_it(platform: Platform) -> None:
    """The content of a version in use stays, and so does the rest of the product."""
    await platform.mine.put_product("TH-1", tsl())
    await platform.mine.add("SN1", model="TH-1")
    body = {"name": "renamed", "tsl": tsl(min=0, max=1)}
    refusal = await platform.mine.refused(409, "PUT", "/products/TH-1", body)
    assert refusal["errCode"] == "tsl_version_in_use"
    assert "tsl.version" in refusal["errMsg"]
    got = await platform.mine.done("GET", "/products/TH-1")
    assert got["name"] == "TH-1"
    assert got["tsl"]["properties"][0]["dataSpec"]["validator"] == {"min": -20, "max": 70}


async def test_every_fault_of_a_product_is_named_with_its_path(platform: Platform) -> None:
    """The text of one answer names them all."""
    wrong = tsl(min=5, max=1)
    wrong["properties"].append({"id": "x", "dataSpec": {"dataType": "NOTHING"}})
    body = {"name": "Sensor", "snPrefixes": ["A B"], "tsl": wrong}
    refusal = await platform.mine.refused(400, "PUT", "/products/TH-1", body)
    assert "data" not in refusal
    faults = refusal["errMsg"].split("; ")
    assert len(faults) >= 3
    for field in ("snPrefixes[0]", "tsl.properties[1].dataSpec.dataType"):
        assert any(fault.startswith(f"{field}: ") for fault in faults)


async def test_a_product_without_devices_is_deleted_with_its_tsls(platform: Platform) -> None:
    """DELETE answers the model and leaves nothing."""
    await platform.mine.put_product("TH-1", tsl())
    assert await platform.mine.done("DELETE", "/products/TH-1") == "TH-1"
    assert await platform.database["tsls"].count_documents({}) == 0
    assert await platform.database["product_usage"].count_documents({}) == 0
    refusal = await platform.mine.refused(404, "GET", "/products/TH-1")
    assert refusal["errCode"] == "product_not_found"
    await platform.mine.refused(404, "DELETE", "/products/TH-1")


async def test_a_product_in_use_is_not_deleted(platform: Platform) -> None:
    """Devices need it, also one that was removed from its application."""
    await platform.mine.put_product("TH-1", tsl())
    device = await platform.mine.add("SN1", model="TH-1")
    await platform.mine.done("PUT", f"/devices/remove/{device}")
    refusal = await platform.mine.refused(409, "DELETE", "/products/TH-1")
    assert refusal["errCode"] == "product_in_use"


@pytest.mark.parametrize("model", ["generic", "Generic"])
async def test_the_generic_product_stays(platform: Platform, model: str) -> None:
    """The built-in product can be neither changed nor deleted."""
    await platform.mine.refused(409, "PUT", f"/products/{model}", {"name": "x", "tsl": tsl()})
    await platform.mine.refused(409, "DELETE", f"/products/{model}")
    assert (await platform.mine.done("GET", "/products/generic"))["tsl"]["version"]


async def test_a_prefix_belongs_to_one_product(platform: Platform) -> None:
    """The refusal names the product that has it; another tenant may have the same."""
    await platform.mine.put_product("TH-1", tsl(), snPrefixes=["67A", "67B"])
    await platform.mine.put_product("TH-3", tsl())
    body = {"name": "x", "snPrefixes": ["67b"], "tsl": tsl()}
    refusal = await platform.mine.refused(409, "PUT", "/products/TH-2", body)
    assert refusal["errCode"] == "sn_prefix_taken"
    assert "67B" in refusal["errMsg"]
    assert "TH-1" in refusal["errMsg"]
    await platform.foreign.put_product("TH-2", tsl(), snPrefixes=["67B"])
    await platform.mine.put_product("TH-4", tsl())


async def test_products_are_listed_page_by_page(platform: Platform) -> None:
    """The built-in one comes first, others by model; each tenant sees its own."""
    for model in ("C", "A", "B"):
        await platform.mine.put_product(model, tsl())
    await platform.foreign.put_product("Z", tsl())
    pages = [
        await platform.mine.done("GET", f"/products?pageSize=2&pageNumber={number}")
        for number in (1, 2, 3)
    ]
    models = [[product["model"] for product in page["content"]] for page in pages]
    assert models == [["generic", "A"], ["B", "C"], []]
    assert {page["total"] for page in pages} == {4}
    assert len((await platform.sibling.done("GET", "/products"))["content"]) == 4


async def test_products_are_their_tenants(platform: Platform) -> None:
    """One tenant's product is nothing to another, an application's is its siblings' too."""
    await platform.mine.put_product("TH-1", tsl())
    await platform.sibling.done("GET", "/products/TH-1")
    await platform.foreign.refused(404, "GET", "/products/TH-1")
    await platform.foreign.refused(404, "DELETE", "/products/TH-1")


async def test_a_bad_product_is_refused(platform: Platform, subtests: pytest.Subtests) -> None:
    """400 that names the field."""
    for path, body, named in [
        ("/products/a%20b", {"name": "x", "tsl": tsl()}, "model"),
        ("/products/-a", {"name": "x", "tsl": tsl()}, "model"),
        ("/products/TH", {"tsl": tsl()}, "name"),
        ("/products/TH", {"name": "  ", "tsl": tsl()}, "name"),
        ("/products/TH", {"name": "x"}, "tsl"),
        ("/products/TH", {"name": "x", "tsl": []}, "tsl"),
        ("/products/TH", {"name": "x", "tsl": tsl("v 1")}, "tsl.version"),
        ("/products/TH", {"name": "x", "tsl": tsl(), "deviceType": "CAR"}, "deviceType"),
        ("/products/TH", {"name": "x", "tsl": tsl(), "snPrefixes": [""]}, "snPrefixes[0]"),
        ("/products/TH", {"name": "x", "tsl": tsl(), "snPrefixes": "67"}, "snPrefixes"),
        ("/products/TH", {"name": "x", "tsl": tsl(), "colour": 1}, "colour"),
    ]:
        with subtests.test(str((path, body, named))):
            assert named in (await platform.mine.refused(400, "PUT", path, body))["errMsg"]


async def test_simultaneous_puts_all_succeed(platform: Platform) -> None:
    """Later requests update the product that the first has created."""
    body = {"name": "x", "snPrefixes": ["67"], "tsl": tsl()}
    answers = await together(*(platform.mine.ask("PUT", "/products/T", body) for _ in range(6)))
    assert [answer.status_code for answer in answers] == [200] * 6


async def test_a_prefix_goes_to_one_of_two_at_the_same_time(platform: Platform) -> None:
    """One 200, the others 409 naming it."""
    body = {"name": "x", "snPrefixes": ["67"], "tsl": tsl()}
    answers = await together(
        *(platform.mine.ask("PUT", f"/products/T{number}", body) for number in range(4))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]


async def test_no_device_is_left_without_its_product(platform: Platform) -> None:
    """Deleting a product while devices are added: either it stays or they are refused."""
    for number in range(5):
        await platform.mine.put_product("TH-1", tsl())
        body = {"snDevEUI": f"SN{number}", "name": "x", "model": "TH-1"}
        added, deleted = await together(
            platform.mine.ask("POST", "/devices", body),
            platform.mine.ask("DELETE", "/products/TH-1"),
        )
        assert (added.status_code, deleted.status_code) in {(200, 409), (400, 200)}
        if added.status_code == 200:
            await platform.mine.done("DELETE", f"/devices/{added.json()['data']['deviceId']}")


async def test_a_product_may_keep_history_for_fewer_days(platform: Platform) -> None:
    """The days are shown, changed, and given up by a PUT without them; nonsense is refused."""
    put = await platform.mine.put_product("TH-1", tsl(), historyDays=7)
    assert put["historyDays"] == 7
    assert (await platform.mine.done("GET", "/products/TH-1"))["historyDays"] == 7
    assert (await platform.mine.put_product("TH-1", tsl(), historyDays=8))["historyDays"] == 8
    assert "historyDays" not in await platform.mine.put_product("TH-1", tsl())
    body = {"name": "Sensor", "tsl": tsl(), "historyDays": 0}
    refusal = await platform.mine.refused(400, "PUT", "/products/TH-1", body)
    assert "historyDays" in refusal["errMsg"]


async def test_a_product_may_say_when_silence_is_offline(platform: Platform) -> None:
    """In minutes, up to two days; given up by a PUT without them."""
    put = await platform.mine.put_product("TH-1", tsl(), deviceOfflineTimeout=30)
    assert put["deviceOfflineTimeout"] == 30
    assert (await platform.mine.done("GET", "/products/TH-1"))["deviceOfflineTimeout"] == 30
    for wrong in (0, 2881):
        body = {"name": "Sensor", "tsl": tsl(), "deviceOfflineTimeout": wrong}
        refusal = await platform.mine.refused(400, "PUT", "/products/TH-1", body)
        assert "deviceOfflineTimeout" in refusal["errMsg"]
    assert "deviceOfflineTimeout" not in await platform.mine.put_product("TH-1", tsl())


async def test_a_product_may_name_the_property_that_is_the_place(platform: Platform) -> None:
    """A STRUCT with two numbers; anything else is refused."""
    kinds = {"gps": "STRUCT", "gps.latitude": "DOUBLE", "gps.longitude": "FLOAT", "n": "INT"}
    document = tsl()
    document["properties"] += [
        {"id": key, "name": key, "accessMode": "R", "dataSpec": {"dataType": kind}}
        for key, kind in kinds.items()
    ]
    put = await platform.mine.put_product("TH-1", document, locationProperty="gps")
    assert put["locationProperty"] == "gps"
    for wrong in ("n", "nowhere", ""):
        body = {"name": "Sensor", "tsl": document, "locationProperty": wrong}
        refusal = await platform.mine.refused(400, "PUT", "/products/TH-1", body)
        assert "locationProperty" in refusal["errMsg"]
    assert "locationProperty" not in await platform.mine.put_product("TH-1", document)


def keyed_tsl() -> dict[str, Any]:
    """A TSL whose property has another key than its id."""
    document = tsl()
    document["properties"][0]["propertyKey"] = "outdoor"
    return document


async def _keys(platform: Platform) -> set[str]:
    """The keys by which values of the product are checked now."""
    compiled = await TslStore(platform.database).find_or_generic("default", "TH-1", "v1.0")
    return {key for key in ("temperature", "outdoor") if compiled.property(key)}


async def test_values_are_named_by_the_property_keys_of_an_import(platform: Platform) -> None:
    await platform.mine.put_product("TH-1", keyed_tsl())

    got = await platform.mine.done("GET", "/products/TH-1")
    entry = got["tsl"]["properties"][0]
    assert (entry["id"], entry["propertyKey"]) == ("temperature", "outdoor")
    assert await _keys(platform) == {"outdoor"}


async def test_a_document_that_was_stored_before_keeps_its_ids_until_it_is_imported_again(
    platform: Platform,
) -> None:
    """Also while devices use it: its keys were ignored when it was imported."""
    await platform.mine.put_product("TH-1", keyed_tsl())
    await platform.mine.add("SN1", model="TH-1")

    for _ in range(2):
        await _restore_member_ids(platform.database)
    assert await _keys(platform) == {"temperature"}

    await platform.mine.put_product("TH-1", keyed_tsl())
    assert await _keys(platform) == {"outdoor"}
    body = {"name": "x", "tsl": tsl()}
    await platform.mine.refused(409, "PUT", "/products/TH-1", body)
