"""Devices: added, found, changed, removed and deleted as the specification says."""

import asyncio

import pytest

from tests.contract.client import MODEL, PRODUCT, SAFE, Api, accepted, new_sn
from tests.contract.conftest import Thing
from tests.contract.console import Console, console_accepted
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")


async def test_add_answers_the_short_record(api: Api) -> None:
    """`{sn, deviceId}`, the id a number that every language holds exactly."""
    sn = new_sn()
    added = await api.done("POST", "/devices", {"snDevEUI": sn, "name": "n"})
    assert set(added) == {"sn", "deviceId"}
    assert added["sn"] == sn
    assert type(added["deviceId"]) is int
    assert 0 < added["deviceId"] < SAFE


async def test_an_sn_of_16_hex_digits_is_the_dev_eui(api: Api) -> None:
    """Clients write it in any case; the DevEUI is upper-case."""
    eui = new_sn("")[:12].lower() + "beef"
    added = await api.done("POST", "/devices", {"snDevEUI": eui, "name": "n"})
    assert set(added) == {"sn", "deviceId", "devEUI"}
    assert added["devEUI"] == eui.upper()


async def test_the_record_has_every_field_with_its_type(api: Api, thing: Thing) -> None:
    """The table of the notes; what is unknown is absent, never null."""
    body = {
        "deviceId": thing.id,
        "name": "a name",
        "description": "d",
        "project": "p",
        "tag": ["x", "y"],
    }
    await api.done("PUT", "/devices", body)
    record = await api.done("GET", f"/devices/{thing.id}")
    assert None not in record.values()
    assert record == {
        "sn": thing.sn,
        "deviceId": thing.id,
        "name": "a name",
        "description": "d",
        "project": "p",
        "tag": ["x", "y"],
        "model": MODEL,
        "tslVersion": "v1.0",
        "deviceType": "COMMON",
        "connectStatus": "DISCONNECT",
        "licenseStatus": "VALID",
        "rpsStatus": "DISABLE",
        "autopStatus": "DISABLE",
        "application": {"applicationId": api.id, "applicationName": "contract"},
        "dataStorage": True,
    }
    await api.report(thing.sn, thing.key, {"properties": {"battery": 55}})
    record = await api.done("GET", f"/devices/{thing.id}")
    assert type(record["lastUpdateTime"]) is int
    assert record["lastUpdateTime"] > 1_700_000_000_000


async def test_the_java_client_adds_and_reads_the_tsl(api: Api) -> None:
    """It upper-cases the SN, leaves nulls out, and asks for the TSL at once."""
    sn = new_sn("ct")
    body = {"snDevEUI": sn.upper(), "name": "Sensor", "autoProvision": False}
    added = await api.done("POST", "/devices", body)
    tsl = await api.done("GET", f"/devices/{added['deviceId']}/thing-specification")
    assert set(tsl) == {"version", "properties", "events", "services"}
    found = {"sn": sn.lower(), "pageNumber": 1, "pageSize": 1}
    page = await api.done("POST", "/devices/search", found)
    assert page["content"][0]["deviceId"] == added["deviceId"]


async def test_an_update_returns_the_short_record_and_keeps_absent_fields(
    api: Api, thing: Thing
) -> None:
    """`tag` replaces all tags; the id may be a text."""
    full = {"deviceId": thing.id, "name": "one", "project": "p", "tag": ["a", "b"]}
    assert await api.done("PUT", "/devices", full) == {"sn": thing.sn, "deviceId": thing.id}
    await api.done("PUT", "/devices", {"deviceId": str(thing.id), "name": "two", "tag": ["c"]})
    record = await api.done("GET", f"/devices/{thing.id}")
    assert (record["name"], record["project"], record["tag"]) == ("two", "p", ["c"])


async def test_a_deletion_returns_the_sn(api: Api, thing: Thing) -> None:
    """Later requests for the device get 404, as does a second deletion."""
    assert await api.done("DELETE", f"/devices/{thing.id}") == thing.sn
    for method in ("GET", "DELETE"):
        await api.fails(
            404, method, f"/devices/{thing.id}", code="device_not_found", names=["deviceId"]
        )


async def test_a_removed_device_keeps_its_id_and_history(api: Api, thing: Thing) -> None:
    """The answer has no data; added again, it is the device that it was."""
    await api.report(thing.sn, thing.key, {"properties": {"counter": 1}})
    accepted(await api.ask("PUT", f"/devices/remove/{thing.id}"), data=False)
    await api.fails(404, "GET", f"/devices/{thing.id}")
    again = await api.done("POST", "/devices", {"snDevEUI": thing.sn.lower(), "name": "again"})
    assert again["deviceId"] == thing.id
    assert again["sn"] == thing.sn
    page = await api.done("GET", f"/devices/{thing.id}/properties/history")
    assert [entry["properties"] for entry in page["list"]] == [{"counter": 1}]


async def test_another_application_may_take_a_removed_device(
    api: Api, foreign: Api, thing: Thing
) -> None:
    """It is freed for the tenant's other applications, without what it said and was asked."""
    properties = {"counter": 1, "led": True, "battery": 50}
    await api.report(thing.sn, thing.key, {"properties": properties})
    asked = await api.ask("PATCH", f"/devices/{thing.id}/properties", {"properties": {"led": True}})
    accepted(await api.ask("PUT", f"/devices/remove/{thing.id}"), data=False)
    path = f"/ingest/v1/{thing.sn}/report"
    late = await api.http.post(
        path, json={"properties": {"counter": 2}}, auth=(thing.sn, thing.key)
    )
    assert late.status_code == 401
    task = accepted(await api.ask("GET", asked.headers["location"]))
    assert (task["status"], task["errCode"]) == ("FAILED", "device_removed")

    taken = await foreign.done("POST", "/devices", {"snDevEUI": thing.sn, "name": "theirs"})
    assert taken["deviceId"] == thing.id
    await api.fails(404, "GET", f"/devices/{thing.id}")
    assert (await foreign.done("GET", f"/devices/{thing.id}/properties/history"))["list"] == []
    assert (await foreign.done("GET", f"/devices/{thing.id}/config"))["properties"] == {}
    record = await foreign.done("GET", f"/devices/{thing.id}")
    assert {"electricity", "lastUpdateTime"}.isdisjoint(record)
    key = (await foreign.done("POST", f"/devices/{thing.id}/credentials"))["key"]
    assert await foreign.commands(thing.sn, key, wait=0) == []
    await foreign.report(thing.sn, key, {"properties": {"counter": 3}})
    page = await foreign.done("GET", f"/devices/{thing.id}/properties/history")
    assert [entry["properties"] for entry in page["list"]] == [{"counter": 3}]


async def test_a_removed_device_may_be_deleted_or_get_a_profile(
    api: Api, foreign: Api, thing: Thing
) -> None:
    """By the application that had it; the record is deleted before the device is added."""
    accepted(await api.ask("PUT", f"/devices/remove/{thing.id}"), data=False)
    profile = {"sn": thing.sn, "profileUrl": "https://example.com/p"}
    await api.done("POST", "/rps/profile", profile)
    body = {"snDevEUI": thing.sn, "name": "n"}
    await api.fails(409, "POST", "/devices", body, code="rps_record_exists")
    await foreign.fails(404, "DELETE", f"/devices/{thing.id}", code="device_not_found")
    assert await api.done("DELETE", f"/devices/{thing.id}") == thing.sn
    await api.done("DELETE", f"/rps/{thing.sn}")
    assert (await foreign.done("POST", "/devices", body))["deviceId"] != thing.id


async def test_the_devices_of_a_deleted_application_are_free(
    platform: Platform, api: Api, alone: Api
) -> None:
    """At once for other applications, and their keys and tasks end."""
    sn = new_sn()
    identity = await alone.add(sn)
    key = (await alone.done("POST", f"/devices/{identity}/credentials"))["key"]
    await alone.report(sn, key, {"properties": {"counter": 1}})
    await platform.delete_application(alone.id)
    assert await api.add(sn) == identity
    late = await api.http.post(f"/ingest/v1/{sn}/report", json={"properties": {}}, auth=(sn, key))
    assert late.status_code == 401
    assert (await api.done("GET", f"/devices/{identity}/properties/history"))["list"] == []


async def test_a_device_that_users_added_is_not_taken(api: Api, admin: Console) -> None:
    """409: it belongs to the tenant's users."""
    sn = new_sn()
    service = "direct.integration.add_device"
    body = {"name": "n", "integration": "direct", "param_entities": {f"{service}.sn": sn}}
    console_accepted(await admin.ask("POST", "/device", body), data=False)
    taking = {"snDevEUI": sn, "name": "n"}
    await api.fails(409, "POST", "/devices", taking, code="device_already_exists")


async def test_the_tasks_of_a_deleted_device_end(api: Api, thing: Thing) -> None:
    """FAILED at once, with the reason."""
    path = f"/devices/{thing.id}/services/call"
    call = await api.ask("POST", path, {"serviceId": "reboot"})
    assert await api.done("DELETE", f"/devices/{thing.id}") == thing.sn
    task = accepted(await api.ask("GET", call.headers["location"]))
    found = (task["status"], task["errCode"], task["errMsg"])
    assert found == ("FAILED", "device_deleted", "the device was deleted")


async def test_credentials_are_new_each_time(api: Api, thing: Thing) -> None:
    """`{sn, key}`; the old key dies, and no record shows a key."""
    issued = await api.done("POST", f"/devices/{thing.id}/credentials")
    assert set(issued) == {"sn", "key"}
    assert issued["sn"] == thing.sn
    assert issued["key"] != thing.key
    body = {"properties": {"counter": 1}}
    path = f"/ingest/v1/{thing.sn}/report"
    assert (await api.http.post(path, json=body, auth=(thing.sn, thing.key))).status_code == 401
    assert (await api.http.post(path, json=body, auth=(thing.sn, issued["key"]))).status_code == 202
    assert issued["key"] not in (await api.ask("GET", f"/devices/{thing.id}")).text


async def test_search_pages_as_clients_walk_them(alone: Api) -> None:
    """Until content is empty or pageNumber*pageSize reaches total; numbers may be text."""
    ids = [await alone.add() for _ in range(5)]
    found: list[int] = []
    number = 1
    while True:
        page = await alone.done(
            "POST", "/devices/search", {"pageSize": "2", "pageNumber": str(number)}
        )
        assert set(page) == {"pageSize", "pageNumber", "total", "content"}
        assert (page["pageSize"], page["pageNumber"], page["total"]) == (2, number, 5)
        found += [entry["deviceId"] for entry in page["content"]]
        if number * 2 >= page["total"]:
            break
        number += 1
    assert sorted(found) == sorted(ids)
    beyond = await alone.done("POST", "/devices/search", {"pageSize": 200, "pageNumber": 2})
    assert (beyond["content"], beyond["total"]) == ([], 5)


async def test_every_filter_matches(alone: Api) -> None:
    """`sn` and `devEUI` match completely, `name`, `model` and `keyword` in part."""
    eui = new_sn("")[:12] + "CAFE"
    wanted = await alone.add(
        eui, name="Cold room (1)", model=MODEL, project="north", tag=["t1", "t2"]
    )
    other = await alone.add(new_sn("XX"), name="elsewhere")
    for fits, misses in (
        ({"sn": eui.lower()}, {"sn": eui[:-1]}),
        ({"devEUI": eui.lower()}, {"devEUI": eui[:-1]}),
        ({"name": "ROOM (1"}, {"name": "room.*"}),
        ({"model": "contract"}, {"model": "nothing"}),
        ({"keyword": "cold"}, {"keyword": "warm"}),
        ({"keyword": eui[3:9].lower()}, {"keyword": "%%"}),
        ({"project": "north"}, {"project": "south"}),
        ({"tag": "t2"}, {"tag": "t3"}),
        ({"tag": ["t3", "t1"]}, {"tag": ["t3"]}),
        ({"model": MODEL, "connectStatus": ["DISCONNECT"]}, {"connectStatus": ["ONLINE"]}),
        ({"model": MODEL, "deviceType": ["GATEWAY", "COMMON"]}, {"deviceType": ["GATEWAY"]}),
        ({"model": MODEL, "rpsStatus": ["DISABLE"]}, {"rpsStatus": ["WAITING"]}),
        ({"model": MODEL, "autopStatus": ["DISABLE"]}, {"autopStatus": ["SUCCESS"]}),
        ({"model": MODEL, "applicationId": str(alone.id)}, {"applicationId": alone.id + 1}),
        ({"model": MODEL, "sn": "", "keyword": "", "tag": []}, {"imei": "123"}),
        ({"model": MODEL}, {"hardwareVersion": "9"}),
        ({"model": MODEL}, {"firmwareVersion": "9"}),
        ({"model": MODEL}, {"electricityMax": 5}),
        ({"model": MODEL}, {"electricityMin": "1"}),
    ):
        for search, expected in ((fits, [wanted]), (misses, [])):
            page = await alone.done(
                "POST", "/devices/search", {"pageSize": 10, "pageNumber": 1, **search}
            )
            ids = [entry["deviceId"] for entry in page["content"]]
            assert (ids, page["total"]) == (expected, len(expected)), search
    assert other != wanted


async def test_a_battery_level_is_found_by_its_bounds(alone: Api) -> None:
    """`electricity` follows what the device reports; Max=5 lists those that need care."""
    sn = new_sn()
    identity = await alone.add(sn)
    key = (await alone.done("POST", f"/devices/{identity}/credentials"))["key"]
    await alone.report(sn, key, {"properties": {"battery": 4}})
    search = {"pageSize": 1, "pageNumber": 1, "electricityMax": 5}

    async def found() -> bool:
        page = await alone.done("POST", "/devices/search", search)
        return page["total"] == 1

    async with asyncio.timeout(30):
        while not await found():
            await asyncio.sleep(0.1)
    page = await alone.done("POST", "/devices/search", {**search, "electricityMin": 4})
    assert page["content"][0]["electricity"] == 4


SORTABLE = (
    *("sn", "deviceId", "devEUI", "imei", "name", "description", "project", "tag", "model"),
    *("tslVersion", "deviceType", "connectStatus", "licenseStatus", "rpsStatus", "autopStatus"),
    *("hardwareVersion", "firmwareVersion", "electricity", "lastUpdateTime", "application"),
    *("mac", "wlanMac", "dataStorage"),
)


async def test_every_field_of_the_record_can_be_sorted_by(alone: Api) -> None:
    """Both directions, in any case; a sort that ties is still a whole, stable order."""
    ids = [await alone.add(new_sn(), name=name) for name in ("b", "c", "a")]
    for field in SORTABLE:
        for direction in ("asc", "desc", "ASC"):
            sorts = [{"property": field, "direction": direction}]
            page = await alone.done(
                "POST", "/devices/search", {"pageSize": 10, "pageNumber": 1, "sorts": sorts}
            )
            assert sorted(entry["deviceId"] for entry in page["content"]) == sorted(ids), field
    for direction, names in (("asc", ["a", "b", "c"]), ("desc", ["c", "b", "a"])):
        sorts = [{"property": "name", "direction": direction}]
        page = await alone.done(
            "POST", "/devices/search", {"pageSize": 10, "pageNumber": 1, "sorts": sorts}
        )
        assert [entry["name"] for entry in page["content"]] == names


async def test_the_tsl_is_flat_and_has_both_mappings(api: Api, thing: Thing) -> None:
    """Dotted ids with `parentId`, one `_item`, `mapping` beside `mappings`, no nulls."""
    tsl = await api.done("GET", f"/devices/{thing.id}/thing-specification")
    properties = {one["id"]: one for one in tsl["properties"]}
    assert list(properties) == [one["id"] for one in PRODUCT["tsl"]["properties"]]
    for identity, one in properties.items():
        assert one["propertyKey"] == identity
        assert one["accessMode"] in {"R", "W", "RW"}
        parent = one["dataSpec"].get("parentId")
        assert parent == (identity.rpartition(".")[0] or None)
    enum = properties["lorawan_class"]["dataSpec"]
    assert enum["mapping"] == {"0": "Class A", "2": "Class C"}
    assert enum["mappings"] == [
        {"key": "0", "value": "Class A"},
        {"key": "2", "value": "Class C"},
    ]
    unit = properties["reporting_interval.unit"]["dataSpec"]
    assert unit["mappings"] == [{"key": "0", "value": "s"}, {"key": "1", "value": "min"}]
    assert properties["rules"]["dataSpec"]["elementDataType"] == "STRUCT"
    assert properties["rules._item.limit"]["dataSpec"]["parentId"] == "rules._item"
    assert properties["temperature"]["dataSpec"]["validator"] == {"min": -20, "max": 70}
    assert [one["id"] for one in tsl["events"][0]["outputs"]] == [
        "historical_data.timestamp",
        "historical_data.temperature",
    ]
    assert tsl["events"][0]["outputs"][1]["ref"] == "temperature"
    assert all("dataSpec" in one for one in tsl["services"][1]["inputs"])
    assert tsl["services"][0]["inputs"] == []


async def test_auto_provision_sends_the_configuration(api: Api) -> None:
    """WAITING until the device confirms, then SUCCESS; `profile` is the older name."""
    config = {"version": "v1.0", "type": "TSL", "properties": {"led": True}}
    for name, given in (
        ("config", config),
        ("profile", '{"type":"tsl","properties":{"led":true}}'),
    ):
        sn = new_sn()
        identity = await api.add(sn, autoProvision=True, **{name: given})
        assert (await api.done("GET", f"/devices/{identity}"))["rpsStatus"] == "WAITING"
        key = (await api.done("POST", f"/devices/{identity}/credentials"))["key"]
        (command,) = await api.commands(sn, key)
        assert (command["kind"], command["properties"]) == ("SET_PROPERTIES", {"led": True})
        await api.reply(sn, key, {"commandId": command["commandId"], "status": "SUCCESS"})
        record = await api.done("GET", f"/devices/{identity}")
        assert record["rpsStatus"] == record["autopStatus"] == "SUCCESS"


async def test_history_is_empty_without_data_storage(api: Api, thing: Thing) -> None:
    """The latest value is still there: the configuration shows it."""
    body = {"deviceId": thing.id, "name": "n", "dataStorage": False}
    await api.done("PUT", "/devices", body)
    await api.report(thing.sn, thing.key, {"properties": {"led": True}})
    page = await api.done("GET", f"/devices/{thing.id}/properties/history")
    assert page == {"list": [], "pageSize": 100}
    config = await api.done("GET", f"/devices/{thing.id}/config")
    assert config["properties"] == {"led": True}
