"""Management API: alarms and their rules, through the gateway, as consoles use them."""

import asyncio
from typing import Any, Literal

import pytest
from msgspec import UNSET, UnsetType

from libs.common.clock import now_ms
from tests.contract.client import Api
from tests.contract.console import Console, new_name
from tests.contract.hall import UNKNOWN, make_hall
from tests.contract.shapes import Device, Exact, IdText, Ms, Page, shaped
from tests.contract.test_management_fleet import does
from tests.contract.test_management_live_mqtt import page as page_of
from tests.contract.test_management_live_mqtt import until_told

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]


class Alarm(Exact, kw_only=True):
    """An alarm in a list."""

    id: IdText
    alarm_status: bool
    alarm_time: Ms
    alarm_content: str
    device_id: IdText
    device_name: str
    latitude: float | UnsetType = UNSET
    longitude: float | UnsetType = UNSET
    address: str | UnsetType = UNSET
    severity: Literal["CRITICAL", "MAJOR", "MINOR", "WARNING", "INFO"]
    rule_id: IdText
    open: bool
    value: Any = UNSET
    cleared_time: Ms | UnsetType = UNSET
    cleared_by: str | UnsetType = UNSET
    claimed_time: Ms | UnsetType = UNSET
    claimed_by: str | UnsetType = UNSET
    claimed_name: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


def common_ids(device: Device) -> dict[str, str]:
    """The ids of what every device has, by the last part of its key."""
    assert device.common_entities is not UNSET
    return {entity.key.rpartition("@")[2]: entity.id for entity in device.common_entities}


async def test_widgets_get_the_state_of_devices(admin: Console, api: Api) -> None:
    """They get its first entities, status, location and newest unclaimed alarm."""
    hall, name = await make_hall(admin, api, reports=False), new_name("hot")
    place = {"latitude": 1.5, "longitude": 2.5, "address": "Road"}
    search = {"id_list": [hall.device], "page_size": 100, "page_number": 1}
    (device,) = shaped(await admin.done("POST", "/device/search", search), Page[Device]).content
    assert device.important_entities is not UNSET
    places = [one.value_attribute["important"] for one in device.important_entities]
    assert places == list(range(1, len(places) + 1))
    assert "temperature" in {one.key.rpartition(".")[2] for one in device.important_entities}
    ids = common_ids(device)
    wanted = {"entity_ids": list(ids.values())}
    assert set(await admin.done("POST", "/entity/batch-get-status", wanted)) == set(ids.values())

    async with page_of(admin) as (client, _):
        await does(admin, "PUT", f"/device/{hall.device}/location", place)
        await until_told(client, ids["latitude"], ids["longitude"], ids["address"])
        condition = {
            "type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 30,
        }  # fmt: skip
        body = {"name": name, "severity": "MAJOR", "device_id": hall.device, "condition": condition}
        await admin.done("POST", "/alarm-rules", body)
        await hall.report(temperature=35.5)
        await until_told(client, ids["status"], ids["alarm_status"])
        found = await admin.done("POST", "/entity/batch-get-status", wanted)
        values = {path: found[one].get("value") for path, one in ids.items()}
        assert (values["status"], values["address"]) == ("ONLINE", "Road")
        assert (values["latitude"], values["longitude"]) == (1.5, 2.5)
        assert (values["alarm_status"], values["alarm_content"]) == (True, name)
        await does(admin, "POST", "/alarms/claim", {"device_id": hall.device})
        await until_told(client, ids["alarm_status"])
    assert await admin.done("GET", f"/entity/{ids['alarm_status']}/status") == {}
    children = await admin.done("GET", f"/entity/{ids['location']}/children")
    assert {one["entity_id"] for one in children} == {
        ids["latitude"], ids["longitude"], ids["address"],
    }  # fmt: skip


async def test_the_alarm_widget(admin: Console, api: Api) -> None:
    """A rule raises; the widget finds, claims and exports; the rule clears and goes."""
    hall, name = await make_hall(admin, api, reports=False), new_name("hot")
    place = {"latitude": 1.5, "longitude": 2.5, "address": "Road"}
    await does(admin, "PUT", f"/device/{hall.device}/location", place)
    condition = {
        "type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 30,
    }  # fmt: skip
    body = {"name": name, "severity": "MAJOR", "device_id": hall.device, "condition": condition}
    rule = (await admin.done("POST", "/alarm-rules", body))["id"]
    begun = now_ms() - 60_000

    async def alarms(**more: Any) -> list[Alarm]:
        asked = {
            "keyword": "", "device_ids": [hall.device], "start_timestamp": begun,
            "end_timestamp": now_ms() + 60_000, "page_number": 1, "page_size": 10,
        }  # fmt: skip
        found = await admin.done("POST", "/alarms/search", asked | more)
        return shaped(found, Page[Alarm]).content

    async def until(**more: Any) -> Alarm:
        async with asyncio.timeout(30):
            while not (found := await alarms(**more)):
                await asyncio.sleep(0.1)
        return found[0]

    async with asyncio.timeout(30):
        while not await alarms():
            await hall.report(temperature=35.5)
    alarm = await until(alarm_status=[True])
    assert (alarm.alarm_content, alarm.value, alarm.address) == (name, 35.5, "Road")
    await does(admin, "POST", "/alarms/claim", {"device_id": hall.device})
    assert await alarms(alarm_status=[True]) == []
    assert (await alarms(alarm_status=[False]))[0].claimed_name
    query = f"device_ids={hall.device}&start_timestamp={begun}&timezone=Europe/Berlin"
    answer = await admin.ask("GET", f"/alarms/export?{query}")
    assert len(answer.text.splitlines()) == 2
    await hall.report(temperature=20)
    assert (await until(open=False)).cleared_by == "RULE"
    numbers = await admin.done("POST", "/alarms/count", {"device_ids": [hall.device]})
    assert numbers == {"total": 1, "open": 0, "unclaimed": 0, "open_by_severity": {}}
    person = await hall.person("device.view")
    assert (await person.done("POST", "/alarms/search", {}))["content"] == []
    await person.fails(403, "forbidden_permission", "DELETE", f"/alarm-rules/{rule}")
    await does(admin, "DELETE", f"/alarm-rules/{rule}")
    await admin.fails(404, "data_no_found", "GET", f"/alarm-rules/{rule}", field="rule_id")
    await person.close()


async def test_alarms_of_unknown_devices_cannot_be_claimed(admin: Console) -> None:
    """The error names an unknown device; unknown alarms are ignored."""
    body = {"device_id": UNKNOWN}
    await admin.fails(404, "data_no_found", "POST", "/alarms/claim", body, "device_id")
    await does(admin, "POST", "/alarms/claim", {"alarm_ids": [UNKNOWN]})
    await does(admin, "POST", "/alarms/clear", {"alarm_ids": [UNKNOWN]})
    code = "parameter_validation_failed"
    await admin.fails(400, code, "POST", "/alarms/claim", {}, "device_id")
