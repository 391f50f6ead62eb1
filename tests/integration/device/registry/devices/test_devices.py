"""Devices: added, read, changed, removed, deleted, and what is refused on the way."""

import asyncio

import msgspec
import pytest

from libs.common.contracts.events import DeviceChanged
from tests.integration.device.registry.devices.platform import (
    DEVICES_ALLOWED,
    RECORDS_ALLOWED,
    Caller,
    Platform,
    together,
    tsl,
)

EUI = "24e124136b502217"


async def test_an_added_device_answers_its_short_record(platform: Platform) -> None:
    """An SN of 16 hexadecimal digits is the DevEUI as well."""
    body = {"snDevEUI": EUI, "name": "Sensor", "autoProvision": False}
    added = await platform.mine.done("POST", "/devices", body)
    assert added.pop("deviceId") > 0
    assert added == {"sn": EUI, "devEUI": EUI.upper()}
    assert "devEUI" not in await platform.mine.done(
        "POST", "/devices", {"snDevEUI": "SN1", "name": "x"}
    )


async def test_a_device_shows_its_whole_record(platform: Platform) -> None:
    """A device that never connected is DISCONNECT, and has no time of a report."""
    await platform.mine.put_product("TH-1", tsl(), deviceType="GATEWAY")
    device = await platform.mine.add(
        EUI, model="TH-1", description="d", project="p", tag=["a", "b", "a"]
    )
    assert await platform.mine.done("GET", f"/devices/{device}") == {
        "sn": EUI,
        "deviceId": device,
        "devEUI": EUI.upper(),
        "name": f"device {EUI}",
        "description": "d",
        "project": "p",
        "tag": ["a", "b"],
        "model": "TH-1",
        "tslVersion": "v1.0",
        "deviceType": "GATEWAY",
        "connectStatus": "DISCONNECT",
        "licenseStatus": "VALID",
        "rpsStatus": "DISABLE",
        "autopStatus": "DISABLE",
        "application": {"applicationId": 1, "applicationName": "application 1"},
        "dataStorage": True,
    }


async def test_the_time_of_the_newest_report_is_exact(platform: Platform) -> None:
    """Latest values know it before the record does."""
    device = await platform.mine.add("SN1")
    await platform.database["devices"].update_one({"_id": device}, {"$set": {"lastUpdateTime": 5}})
    await platform.database["latest"].insert_one({"_id": device, "t": 9, "v": {}, "ts": {}})
    assert (await platform.mine.done("GET", f"/devices/{device}"))["lastUpdateTime"] == 9
    found = await platform.mine.done("POST", "/devices/search", {"pageSize": 1, "pageNumber": 1})
    assert found["content"][0]["lastUpdateTime"] == 9


async def test_the_tsl_is_there_right_after_adding(platform: Platform) -> None:
    """Clients ask for it with the id they were just given."""
    await platform.mine.put_product("TH-1", tsl())
    device = await platform.mine.add("SN1", model="TH-1")
    got = await platform.mine.done("GET", f"/devices/{device}/thing-specification")
    assert got["version"] == "v1.0"
    assert [member["id"] for member in got["properties"]] == ["temperature"]
    assert got["events"] == got["services"] == []


async def test_the_longest_prefix_chooses_the_product(platform: Platform) -> None:
    """Without a model; an SN that fits none is generic, a model overrules all."""
    await platform.mine.put_product("SHORT", tsl(), snPrefixes=["67"])
    await platform.mine.put_product("LONG", tsl(), snPrefixes=["99", "678A"])
    await platform.foreign.put_product("FOREIGN", tsl(), snPrefixes=["678AB"])
    models = []
    for sn, more in (
        ("678abc", {}),
        ("678b", {}),
        ("5", {}),
        ("99x", {"model": "generic"}),
        ("678a", {"model": "SHORT"}),
    ):
        device = await platform.mine.add(sn, **more)
        models.append((await platform.mine.done("GET", f"/devices/{device}"))["model"])
    assert models == ["LONG", "SHORT", "generic", "generic", "SHORT"]


async def test_a_generic_device_has_an_open_tsl(platform: Platform) -> None:
    """It is readable like any other."""
    device = await platform.mine.add("SN1")
    got = await platform.mine.done("GET", f"/devices/{device}/thing-specification")
    assert got["properties"] == []


@pytest.mark.parametrize("again", ["SN1", "sn1"])
async def test_an_sn_is_added_once(platform: Platform, again: str) -> None:
    """409 for everybody, in any case, and without telling whose it is."""
    await platform.mine.add("SN1")
    body = {"snDevEUI": again, "name": "x"}
    for caller in (platform.mine, platform.sibling, platform.foreign):
        refusal = await caller.refused(409, "POST", "/devices", body)
        assert refusal["errCode"] == "device_already_exists"
        assert refusal["errMsg"] == f"snDevEUI: a device with the SN {again} exists already"


async def test_one_of_simultaneous_adds_succeeds(platform: Platform) -> None:
    """One device and one event result; the other requests get 409."""
    for number in range(5):
        body = {"snDevEUI": f"SN{number}", "name": "x"}
        answers = await together(
            platform.mine.ask("POST", "/devices", body),
            platform.foreign.ask("POST", "/devices", {**body, "snDevEUI": f"sn{number}"}),
            platform.sibling.ask("POST", "/devices", body),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert await platform.database["devices"].count_documents({}) == 5
    assert await platform.database["serials"].count_documents({}) == 5
    assert len(platform.bus.heard) == 5
    assert await platform.database["outbox"].count_documents({}) == 0


async def test_many_devices_of_a_product_are_added_at_a_time(platform: Platform) -> None:
    """They share the product and do not get in each other's way."""
    await platform.mine.put_product("TH-1", tsl())
    devices = await together(*(platform.mine.add(f"SN{n}", model="TH-1") for n in range(40)))
    assert len(set(devices)) == 40


async def test_a_device_is_updated(platform: Platform) -> None:
    """`tag` replaces, what is absent or null stays, the id may be a decimal string."""
    device = await platform.mine.add("SN1", description="d", project="p", tag=["a"])
    body = {"deviceId": str(device), "name": "new", "tag": ["b"], "description": None}
    assert await platform.mine.done("PUT", "/devices", body) == {"sn": "SN1", "deviceId": device}
    got = await platform.mine.done("GET", f"/devices/{device}")
    assert (got["name"], got["description"], got["project"], got["tag"]) == ("new", "d", "p", ["b"])
    body = {"deviceId": device, "name": "new", "description": "", "tag": [], "dataStorage": False}
    await platform.mine.done("PUT", "/devices", body)
    got = await platform.mine.done("GET", f"/devices/{device}")
    assert (got["description"], got["tag"], got["dataStorage"]) == ("", [], False)


async def test_a_device_follows_the_given_tsl_version(platform: Platform) -> None:
    """A version that the product lacks gets 400 and changes nothing."""
    await platform.mine.put_product("TH-1", tsl("v1.0"))
    device = await platform.mine.add("SN1", model="TH-1")
    await platform.mine.put_product("TH-1", tsl("v2.0"))
    body = {"deviceId": device, "name": "x", "tslVersion": "v2.0"}
    await platform.mine.done("PUT", "/devices", body)
    got = await platform.mine.done("GET", f"/devices/{device}/thing-specification")
    assert got["version"] == "v2.0"
    body = {"deviceId": device, "name": "y", "tslVersion": "v3.0"}
    refusal = await platform.mine.refused(400, "PUT", "/devices", body)
    assert "tslVersion" in refusal["errMsg"]
    assert (await platform.mine.done("GET", f"/devices/{device}"))["name"] == "x"


async def test_a_device_added_again_may_change_its_product(platform: Platform) -> None:
    """When the model is given; also while two applications want it."""
    await platform.mine.put_product("TH-1", tsl("v5"))
    device = await platform.mine.add("SN1")
    await platform.mine.done("PUT", f"/devices/remove/{device}")
    body = {"snDevEUI": "SN1", "name": "x", "model": "TH-1"}
    answers = await together(
        platform.mine.ask("POST", "/devices", body), platform.sibling.ask("POST", "/devices", body)
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    stored = await platform.database["devices"].find_one({"_id": device})
    assert (stored["model"], stored["tslVersion"]) == ("TH-1", "v5")


async def test_a_deleted_device_is_gone(platform: Platform) -> None:
    """Its key and latest values too; its SN is free, its id is never used again."""
    device = await platform.mine.add("SN1")
    await platform.mine.done("POST", f"/devices/{device}/credentials")
    await platform.database["latest"].insert_one({"_id": device, "t": 9, "v": {}, "ts": {}})
    await platform.database["history_20260101"].insert_one({"_id": 1, "device": device})
    assert await platform.mine.done("DELETE", f"/devices/{device}") == "SN1"
    assert platform.keys.issued == {}
    assert await platform.database["latest"].count_documents({}) == 0
    assert await platform.database["history_20260101"].count_documents({}) == 1
    await platform.mine.refused(404, "GET", f"/devices/{device}")
    await platform.mine.refused(404, "DELETE", f"/devices/{device}")
    assert await platform.foreign.add("SN1") != device


async def test_a_device_gets_a_key(platform: Platform) -> None:
    """SN and key, shown only here."""
    device = await platform.mine.add("SN1")
    issued = await platform.mine.done("POST", f"/devices/{device}/credentials")
    assert issued == {"sn": "SN1", "key": platform.keys.issued["SN1"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/devices/{id}"),
        ("DELETE", "/devices/{id}"),
        ("PUT", "/devices/remove/{id}"),
        ("GET", "/devices/{id}/thing-specification"),
        ("POST", "/devices/{id}/credentials"),
        ("PUT", "/devices"),
    ],
)
async def test_devices_of_others_are_unknown(platform: Platform, method: str, path: str) -> None:
    """404 and the same words as for an id that nobody has."""
    device = await platform.mine.add("SN1")

    async def refusal(caller: Caller, number: int) -> str:
        body = {"deviceId": number, "name": "x"} if path == "/devices" else None
        content = await caller.refused(404, method, path.format(id=number), body)
        assert content["errCode"] == "device_not_found"
        return str(content["errMsg"]).replace(str(number), "N")

    for caller in (platform.sibling, platform.foreign):
        assert await refusal(caller, device) == await refusal(caller, 999)
    assert platform.bus.changes() == [(f"event.default.device.{device}.added", "added")]


async def test_every_change_is_published(platform: Platform) -> None:
    """Each change has one event, with the device after the change."""
    device = await platform.mine.add(EUI)
    await platform.mine.done("PUT", "/devices", {"deviceId": device, "name": "new"})
    await platform.mine.done("PUT", f"/devices/remove/{device}")
    assert await platform.mine.add(EUI) == device
    await platform.mine.done("DELETE", f"/devices/{device}")
    subject = f"event.default.device.{device}"
    assert platform.bus.changes() == [
        (f"{subject}.added", "added"),
        (f"{subject}.updated", "updated"),
        (f"{subject}.updated", "removed"),
        (f"{subject}.added", "added"),
        (f"{subject}.deleted", "deleted"),
    ]
    events = [
        msgspec.json.decode(message.payload, type=DeviceChanged) for message in platform.bus.heard
    ]
    assert len({event.event_id for event in events}) == 5
    assert events[1].device.name == "new"
    assert events[1].device.dev_eui == EUI.upper()
    assert [event.device.application_id for event in events] == [1, 1, None, 1, 1]


async def test_auto_provision_hands_over_the_configuration(platform: Platform) -> None:
    """The device waits for it; `profile` is the older name, its text may be JSON."""
    config = {"type": "TSL", "properties": {"interval": 5}}
    device = await platform.mine.add("SN1", autoProvision=True, config=config)
    other = await platform.mine.add("SN2", autoProvision=True, profile='{"a": 1}')
    assert platform.provisioning.asked == [(device, config), (other, {"a": 1})]
    assert (await platform.mine.done("GET", f"/devices/{device}"))["rpsStatus"] == "WAITING"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, "config"),
        ({"config": {"bad": 1}}, "config.bad"),
        ({"profile": "{"}, "profile"),
        ({"profile": "[]"}, "profile"),
    ],
)
async def test_a_bad_configuration_adds_no_device(
    platform: Platform, more: dict[str, object], named: str
) -> None:
    """400 that names the field, and nothing is half done."""
    body = {"snDevEUI": "SN1", "name": "x", "autoProvision": True, **more}
    assert named in (await platform.mine.refused(400, "POST", "/devices", body))["errMsg"]
    assert await platform.database["devices"].count_documents({}) == 0
    assert await platform.database["serials"].count_documents({}) == 0


async def test_a_bad_device_is_refused(platform: Platform, subtests: pytest.Subtests) -> None:
    """400 that names the field."""
    for body, named in [
        ({"name": "x"}, "snDevEUI"),
        ({"sn": "SN1", "devEUI": EUI, "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "SN1"}, "name"),
        ({"snDevEUI": "", "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "a.b", "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "a>", "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "SN1\n", "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "x" * 65, "name": "x"}, "snDevEUI"),
        ({"snDevEUI": 5, "name": "x"}, "snDevEUI"),
        ({"snDevEUI": "SN1", "name": ""}, "name"),
        ({"snDevEUI": "SN1", "name": " "}, "name"),
        ({"snDevEUI": "SN1", "name": "x" * 129}, "name"),
        ({"snDevEUI": "SN1", "name": "x", "tag": ["t"] * 21}, "tag"),
        ({"snDevEUI": "SN1", "name": "x", "tag": "t"}, "tag"),
        ({"snDevEUI": "SN1", "name": "x", "tag": [""]}, "tag[0]"),
        ({"snDevEUI": "SN1", "name": "x", "model": "NONE"}, "model"),
        ({"snDevEUI": "SN1", "name": "x", "autoProvision": 3}, "autoProvision"),
        ({"snDevEUI": "SN1", "name": "x", "description": "x" * 1025}, "description"),
        ({"snDevEUI": "SN1", "name": "x", "colour": "red"}, "colour"),
        ([], "object"),
    ]:
        with subtests.test(str((body, named))):
            assert named in (await platform.mine.refused(400, "POST", "/devices", body))["errMsg"]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"name": "x"}, "deviceId"),
        ({"deviceId": 5}, "name"),
        ({"deviceId": "five", "name": "x"}, "deviceId"),
        ({"deviceId": 0, "name": "x"}, "deviceId"),
        ({"deviceId": 2**53, "name": "x"}, "deviceId"),
        ({"deviceId": True, "name": "x"}, "deviceId"),
        ({"deviceId": 5, "name": "x", "sn": "SN1"}, "sn"),
    ],
)
async def test_a_bad_update_is_refused(platform: Platform, body: object, named: str) -> None:
    """400 that names the field."""
    assert named in (await platform.mine.refused(400, "PUT", "/devices", body))["errMsg"]


async def test_a_tenant_has_as_many_devices_as_it_may(platform: Platform) -> None:
    """The next one is refused by the name of the limit; a deleted one makes room."""
    await platform.database["devices"].insert_many(
        {"_id": at, "tenant": "full", "snKey": f"FULL{at}", "model": "generic"}
        for at in range(1, DEVICES_ALLOWED)
    )
    last = await platform.full.add("LAST")
    body = {"snDevEUI": "MORE", "name": "one more"}
    for _ in range(2):
        refusal = await platform.full.ask("POST", "/devices", body)
        assert refusal.status_code == 429
        assert int(refusal.headers["retry-after"]) > 0
        assert refusal.json()["errMsg"].startswith("devices: ")
    await platform.mine.add("MINE")
    await platform.full.done("DELETE", f"/devices/{last}")

    async with asyncio.timeout(30):
        while (await platform.full.ask("POST", "/devices", body)).status_code == 429:
            await asyncio.sleep(0.1)
    assert await platform.database["devices"].count_documents({"snKey": "MORE"}) == 1


async def test_a_tenant_has_as_many_records_of_a_kind_as_it_may(platform: Platform) -> None:
    """Products and RPS records; what is there may still be changed."""
    database = platform.database
    await database["products"].insert_many(
        {"_id": {"tenant": "full", "model": f"M{at}"}} for at in range(1, RECORDS_ALLOWED)
    )
    await database["rps"].insert_many(
        {"_id": f"R{at}", "tenant": "full", "applicationId": 4} for at in range(1, RECORDS_ALLOWED)
    )
    profile = {"profileUrl": "https://example.com/p"}
    for name in ("LAST", "LAST"):
        await platform.full.put_product(name, tsl())
        await platform.full.done("POST", "/rps/profile", {"sn": name, **profile})
    body = {"name": "Sensor", "tsl": tsl()}
    for refusal in (
        await platform.full.refused(429, "PUT", "/products/MORE", body),
        await platform.full.refused(429, "POST", "/rps/profile", {"sn": "MORE", **profile}),
    ):
        assert refusal["errMsg"].startswith("records: ")
    await platform.mine.put_product("MORE", tsl())


async def test_a_product_has_so_many_versions(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further one is refused by name; those that are there can be put again."""
    monkeypatch.setattr("services.device.things.product_store.MAX_VERSIONS", 2)
    for version in ("v1", "v2"):
        await platform.mine.put_product("TH-1", tsl(version))
    body = {"name": "Sensor", "tsl": tsl("v3")}
    refusal = await platform.mine.refused(409, "PUT", "/products/TH-1", body)
    assert refusal["errCode"] == "too_many_tsl_versions"
    await platform.mine.put_product("TH-1", tsl("v1"))
