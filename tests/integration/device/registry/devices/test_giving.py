"""Devices that users give to applications and take back (docs/reference/ownership.md)."""

from typing import Any

import pytest

from libs.common.contracts.auth import AssignDevice, ReclaimDevice
from libs.common.errors import Conflict, NotFound
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device
from tests.integration.device.registry.devices.platform import Platform

PROFILE = "https://example.com/profile.json"
USERS = [{"userId": 7}, {"integration": "lamps"}]
"""What makes a device the users'."""


async def users_device(platform: Platform, **fields: Any) -> int:
    """A device that users added, with a key and a value; its id."""
    device = await platform.mine.add("SN1")
    await platform.mine.done("POST", f"/devices/{device}/credentials")
    await LatestValues(platform.database).apply([(device, 5, {"temperature": 1.0})])
    change = {"$set": {"application": None, **(fields or USERS[0])}}
    await platform.database["devices"].update_one({"_id": device}, change)
    platform.bus.heard.clear()
    return device


async def give(platform: Platform, device: int, application: int = 2) -> None:
    await platform.assigner.assign(
        AssignDevice("default", device, application, f"app {application}")
    )


async def take(platform: Platform, device: int, application: int = 2) -> None:
    await platform.assigner.withdraw(ReclaimDevice("default", device, application, user_id=9))


@pytest.mark.parametrize("fields", USERS)
async def test_a_given_device_is_the_applications_as_it_stands(
    platform: Platform, fields: dict[str, Any]
) -> None:
    """It finds it with its values; the key goes on, and one event tells of it, however often."""
    device = await users_device(platform, **fields)
    for _ in range(2):
        await give(platform, device)
    got = await platform.sibling.done("GET", f"/devices/{device}")
    assert got["application"] == {"applicationId": 2, "applicationName": "app 2"}
    assert await LatestValues(platform.database).find_values([device]) == {
        device: {"temperature": 1.0}
    }
    assert (list(platform.keys.issued), platform.provisioning.ended) == (["SN1"], [])
    assert platform.bus.changes() == [(f"event.default.device.{device}.added", "added")]
    await platform.mine.refused(404, "GET", f"/devices/{device}")


@pytest.mark.parametrize("fields", USERS)
async def test_a_device_that_is_taken_back_is_the_users_again(
    platform: Platform, fields: dict[str, Any]
) -> None:
    """Its key goes on, its open tasks end, and no application adds, deletes or provisions it."""
    device = await users_device(platform, **fields)
    await give(platform, device)
    platform.bus.heard.clear()
    for _ in range(2):
        await take(platform, device)
    assert (list(platform.keys.issued), platform.provisioning.ended) == (
        ["SN1"], [(device, "device_removed")],
    )  # fmt: skip
    assert platform.bus.changes() == [(f"event.default.device.{device}.updated", "removed")]
    await platform.sibling.refused(404, "GET", f"/devices/{device}")
    await platform.sibling.refused(404, "DELETE", f"/devices/{device}")
    await platform.sibling.refused(409, "POST", "/devices", {"snDevEUI": "SN1", "name": "x"})
    await platform.sibling.refused(
        409, "POST", "/rps/profile", {"sn": "SN1", "profileUrl": PROFILE}
    )


@pytest.mark.parametrize("how", ["removed", "application deleted"])
async def test_a_given_device_goes_back_to_the_users_with_its_key(
    platform: Platform, how: str
) -> None:
    """Its application removes it, or is deleted: it is theirs, and not nobody's."""
    device = await users_device(platform)
    await give(platform, device)
    if how == "removed":
        await platform.sibling.done("PUT", f"/devices/remove/{device}")
    else:
        platform.applications.gone.add(2)
        assert [step async for step in platform.orphans.release_orphans("default")]
    assert (list(platform.keys.issued), len(platform.provisioning.ended)) == (["SN1"], 1)
    for caller in (platform.mine, platform.sibling):
        await caller.refused(409, "POST", "/devices", {"snDevEUI": "SN1", "name": "x"})
        await caller.refused(404, "DELETE", f"/devices/{device}")


async def test_users_can_take_over_a_device_of_an_application(platform: Platform) -> None:
    """It belongs to them afterwards, and its key stays valid."""
    device = await platform.sibling.add("SN1")
    await platform.sibling.done("POST", f"/devices/{device}/credentials")
    await take(platform, device)
    stored = await platform.database["devices"].find_one({"_id": device})
    assert (stored["application"], stored["userId"], list(platform.keys.issued)) == (
        None, 9, ["SN1"],
    )  # fmt: skip
    await platform.sibling.refused(409, "POST", "/devices", {"snDevEUI": "SN1", "name": "x"})


async def test_an_unassigned_device_is_assigned_with_its_values(platform: Platform) -> None:
    """A user decides this for the tenant.

    The former application cannot delete the device any more.
    """
    device = await users_device(platform)
    nobodys = {"$unset": {"userId": ""}, "$set": {"removedFrom": 1}}
    await platform.database["devices"].update_one({"_id": device}, nobodys)
    await give(platform, device)
    assert await LatestValues(platform.database).find_values([device]) == {
        device: {"temperature": 1.0}
    }
    await platform.mine.refused(404, "DELETE", f"/devices/{device}")
    await platform.sibling.done("GET", f"/devices/{device}")


async def test_a_device_that_an_application_removed_is_not_taken_over(platform: Platform) -> None:
    """It is unassigned, and its key is invalid.

    The application gets no event that users took it over.
    """
    device = await platform.sibling.add("SN1")
    await platform.sibling.done("PUT", f"/devices/remove/{device}")
    with pytest.raises(NotFound):
        await take(platform, device)
    await give(platform, device)
    await take(platform, device)
    await platform.mine.refused(409, "POST", "/devices", {"snDevEUI": "SN1", "name": "x"})


async def test_a_device_that_is_removed_during_a_takeover_is_read_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application removes its device first: it is unassigned, and an event says so."""
    device = await platform.sibling.add("SN1")
    remove = DeviceStore.remove_from_application

    async def late(store: DeviceStore, found: Device, application: int, user: int) -> Any:
        await remove(store, found, application)
        return await remove(store, found, application, user)

    monkeypatch.setattr(DeviceStore, "remove_from_application", late)
    with pytest.raises(NotFound):
        await take(platform, device)
    assert platform.provisioning.ended == []


async def test_a_device_of_another_application_is_not_assigned(platform: Platform) -> None:
    """It must be removed there first. A device of a deleted application is assigned immediately."""
    device = await users_device(platform)
    await give(platform, device, 1)
    with pytest.raises(Conflict) as refusal:
        await give(platform, device)
    assert (refusal.value.code, refusal.value.field) == (
        "device_of_another_application", "device_id",
    )  # fmt: skip
    with pytest.raises(NotFound):
        await take(platform, device)
    platform.applications.gone.add(1)
    await give(platform, device)
    await platform.sibling.done("GET", f"/devices/{device}")


async def test_a_device_with_an_rps_record_is_not_given(platform: Platform) -> None:
    """As it is not added while an application has a record of its SN."""
    device = await platform.mine.add("SN1")
    await platform.mine.done("PUT", f"/devices/remove/{device}")
    await platform.mine.done("POST", "/rps/profile", {"sn": "SN1", "profileUrl": PROFILE})
    with pytest.raises(Conflict) as refusal:
        await give(platform, device)
    assert refusal.value.code == "rps_record_exists"


async def test_the_device_of_another_tenant_is_not_known(platform: Platform) -> None:
    """404, whoever has it."""
    device = await platform.foreign.add("SN1")
    for call in (give, take):
        with pytest.raises(NotFound):
            await call(platform, device)


async def test_an_application_cannot_change_devices_of_integrations(platform: Platform) -> None:
    """It may remove such a device, but to delete it or issue a key gets 409 with a code."""
    device = await users_device(platform, integration="lamps")
    await give(platform, device)
    for method, path in (("DELETE", ""), ("POST", "/credentials")):
        refusal = await platform.sibling.refused(409, method, f"/devices/{device}{path}")
        assert refusal["errCode"] == "device_of_integration"
    await platform.sibling.done("PUT", f"/devices/remove/{device}")
