"""Who owns a device: what moves with it, what ends, what stays (docs/reference/ownership.md)."""

from typing import Any

import pytest

from services.device.telemetry.latest_values import LatestValues
from tests.integration.device.registry.devices.platform import Caller, Platform, together, tsl

PROFILE = "https://example.com/profile.json"
FREED = [("removed", "device_removed"), ("application deleted", "application_deleted")]


async def left(platform: Platform, how: str, **more: Any) -> int:
    """A device that is nobody's any more; its id."""
    await platform.mine.put_product("TH-1", tsl())
    device = await platform.mine.add("SN1", model="TH-1", tag=["old"], dataStorage=False, **more)
    await platform.mine.done("POST", f"/devices/{device}/credentials")
    await LatestValues(platform.database).apply([(device, 5, {"temperature": 1.0})])
    facts = {"electricity": 7, "lastUpdateTime": 5, "firmwareVersion": "v1"}
    await platform.database["devices"].update_one({"_id": device}, {"$set": facts})
    if how == "removed":
        assert await platform.mine.done("PUT", f"/devices/remove/{device}") is None
    else:
        platform.applications.gone.add(1)
        assert [step async for step in platform.orphans.release_orphans("default")]
    return device


@pytest.mark.parametrize(("how", "code"), FREED)
async def test_the_key_and_the_tasks_of_a_device_end_when_it_leaves(
    platform: Platform, how: str, code: str
) -> None:
    """Whoever it belongs to next gives it a key of its own; its application sees it no more."""
    device = await left(platform, how)
    assert platform.keys.issued == {}
    assert platform.provisioning.ended == [(device, code)]
    await platform.mine.refused(404, "GET", f"/devices/{device}")


async def test_the_last_application_gets_the_device_back_unchanged(platform: Platform) -> None:
    """It has its id, SN, product, values and configuration.

    An application of another tenant gets 409.
    """
    device = await left(platform, "removed")
    body = {"snDevEUI": "sn1", "name": "again"}
    await platform.foreign.refused(409, "POST", "/devices", body)
    assert await platform.mine.done("POST", "/devices", body) == {"sn": "SN1", "deviceId": device}
    got = await platform.mine.done("GET", f"/devices/{device}")
    assert (got["name"], got["model"], got["tag"]) == ("again", "TH-1", [])
    assert (got["dataStorage"], got["electricity"], got["lastUpdateTime"]) == (False, 7, 5)
    stored = await platform.database["devices"].find_one({"_id": device})
    assert stored.get("ownedSince", 0) == 0
    assert platform.provisioning.forgotten == []


@pytest.mark.parametrize(("how", "_"), FREED)
async def test_another_application_gets_the_device_without_its_values(
    platform: Platform, how: str, _: str
) -> None:
    """Id, SN, product and hardware stay; values, battery, settings and history begin empty."""
    device = await left(platform, how)
    added = await platform.sibling.done("POST", "/devices", {"snDevEUI": "sn1", "name": "theirs"})
    assert added == {"sn": "SN1", "deviceId": device}
    got = await platform.sibling.done("GET", f"/devices/{device}")
    assert (got["model"], got["firmwareVersion"], got["dataStorage"]) == ("TH-1", "v1", False)
    assert got["application"]["applicationId"] == 2
    assert {"electricity", "lastUpdateTime"}.isdisjoint(got)
    assert await LatestValues(platform.database).find_values([device]) == {}
    assert platform.provisioning.forgotten == [device]
    stored = await platform.database["devices"].find_one({"_id": device})
    assert stored["ownedSince"] > 1_700_000_000_000
    await platform.mine.refused(404, "GET", f"/devices/{device}")


async def test_the_time_before_another_owner_is_gone_for_good(platform: Platform) -> None:
    """Back at its first application a device begins anew there as well."""
    device = await left(platform, "removed")
    for caller in (platform.sibling, platform.mine):
        before = (await platform.database["devices"].find_one({"_id": device})).get("ownedSince", 0)
        await caller.done("POST", "/devices", {"snDevEUI": "SN1", "name": "x"})
        after = (await platform.database["devices"].find_one({"_id": device}))["ownedSince"]
        assert after > before
        await caller.done("PUT", f"/devices/remove/{device}")


async def test_a_device_of_a_deleted_application_is_added_at_once(platform: Platform) -> None:
    """Nobody waits for the sweep; of a tenant that it is not of it is still 409."""
    device = await platform.mine.add("SN1")
    await platform.mine.done("POST", f"/devices/{device}/credentials")
    platform.applications.gone.add(1)
    body = {"snDevEUI": "SN1", "name": "x"}
    await platform.foreign.refused(409, "POST", "/devices", body)
    added = await platform.sibling.done("POST", "/devices", body)
    assert (added["deviceId"], platform.keys.issued) == (device, {})


async def test_unassigned_devices_are_skipped(platform: Platform) -> None:
    """The job looks for applications of assigned devices only."""
    await platform.mine.add("SN1")
    device = await platform.mine.add("SN2")
    await platform.mine.done("PUT", f"/devices/remove/{device}")
    assert await platform.orphans.devices.queries.list_applications("default") == [1]


async def test_only_devices_of_the_deleted_application_are_released(platform: Platform) -> None:
    """Its devices and RPS records are released; those of others stay."""
    for caller, sn in ((platform.mine, "SN1"), (platform.sibling, "SN2")):
        await caller.add(sn)
        await caller.done("POST", "/rps/profile", {"sn": f"R{sn}", "profileUrl": PROFILE})
    platform.applications.gone.add(1)
    assert [step async for step in platform.orphans.release_orphans("default")]
    for sn, status in (("SN1", 200), ("RSN1", 200), ("SN2", 409), ("RSN2", 409)):
        answer = await platform.sibling.ask("POST", "/devices", {"snDevEUI": sn, "name": "x"})
        assert answer.status_code == status, sn


@pytest.mark.parametrize("fields", [{"userId": 7}, {"integration": "lamps"}])
async def test_devices_of_users_and_integrations_are_not_assigned(
    platform: Platform, fields: dict[str, Any]
) -> None:
    """They belong to the tenant's users: 409, and no RPS profile."""
    device = await platform.mine.add("SN1")
    change = {"$set": {"application": None, **fields}}
    await platform.database["devices"].update_one({"_id": device}, change)
    body = {"snDevEUI": "SN1", "name": "x"}
    for caller in (platform.mine, platform.sibling):
        refusal = await caller.refused(409, "POST", "/devices", body)
        assert refusal["errCode"] == "device_already_exists"
        await caller.refused(404, "DELETE", f"/devices/{device}")
        profile = {"sn": "SN1", "profileUrl": PROFILE}
        refusal = await caller.refused(409, "POST", "/rps/profile", profile)
        assert refusal["errCode"] == "device_already_exists"


async def test_the_last_application_may_delete_a_device_that_it_removed(platform: Platform) -> None:
    """It may do so while the device is unassigned. Other applications may not."""
    device = await left(platform, "removed")
    await platform.sibling.refused(404, "DELETE", f"/devices/{device}")
    assert await platform.mine.done("DELETE", f"/devices/{device}") == "SN1"
    assert await platform.database["serials"].count_documents({}) == 0
    assert await platform.foreign.add("SN1") != device


async def test_a_device_of_another_application_is_not_deleted_by_its_former_one(
    platform: Platform,
) -> None:
    """404, as for any that is not its own."""
    device = await left(platform, "removed")
    assert await platform.sibling.add("SN1") == device
    await platform.mine.refused(404, "DELETE", f"/devices/{device}")


async def test_a_removed_device_may_get_a_profile(platform: Platform) -> None:
    """While the record is there nobody adds the device; after it, it is the one that it was."""
    device = await left(platform, "removed")
    profile = {"sn": "sn1", "profileUrl": PROFILE}
    refusal = await platform.foreign.refused(409, "POST", "/rps/profile", profile)
    assert refusal["errCode"] == "device_already_exists"
    await platform.mine.done("POST", "/rps/profile", profile)
    body = {"snDevEUI": "SN1", "name": "x"}
    for caller in (platform.mine, platform.sibling):
        refusal = await caller.refused(409, "POST", "/devices", body)
        assert refusal["errCode"] == "rps_record_exists"
    await platform.mine.done("DELETE", "/rps/SN1")
    assert (await platform.mine.done("POST", "/devices", body))["deviceId"] == device
    await platform.mine.refused(409, "POST", "/rps/profile", profile)


async def test_a_record_outlives_the_removed_device_that_it_stands_before(
    platform: Platform,
) -> None:
    """The device is deleted, the record holds the SN, and after it the SN is free."""
    device = await left(platform, "removed")
    await platform.mine.done("POST", "/rps/profile", {"sn": "SN1", "profileUrl": PROFILE})
    assert await platform.mine.done("DELETE", f"/devices/{device}") == "SN1"
    body = {"snDevEUI": "SN1", "name": "x"}
    refusal = await platform.mine.refused(409, "POST", "/devices", body)
    assert refusal["errCode"] == "rps_record_exists"
    await platform.mine.done("DELETE", "/rps/SN1")
    assert await platform.database["serials"].count_documents({}) == 0
    assert await platform.foreign.add("SN1") != device


async def test_a_simultaneous_profile_and_addition_have_one_holder(platform: Platform) -> None:
    """One of two calls for a removed device is rejected."""
    for number in range(5):
        sn = f"SN{number}"
        device = await platform.mine.add(sn)
        await platform.mine.done("PUT", f"/devices/remove/{device}")
        answers = await together(
            platform.mine.ask("POST", "/rps/profile", {"sn": sn, "profileUrl": PROFILE}),
            platform.sibling.ask("POST", "/devices", {"snDevEUI": sn, "name": "x"}),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]


async def test_one_of_two_applications_gets_a_removed_device(platform: Platform) -> None:
    """The other request is rejected, and no value of the former application is visible."""
    device = await left(platform, "removed")
    body = {"snDevEUI": "SN1", "name": "x"}

    async def add(caller: Caller) -> int:
        return (await caller.ask("POST", "/devices", body)).status_code

    answers = await together(add(platform.mine), add(platform.sibling))
    assert sorted(answers) == [200, 409]
    stored = await platform.database["devices"].find_one({"_id": device})
    other = stored["application"]["applicationId"] == 2
    assert bool(stored.get("ownedSince")) is other
