"""An existing console's pages of things, letter by letter.

Every fact "without this the page crashes" is asserted here.
"""

import asyncio
import csv
import io
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.browser import Browser
from tests.contract.console import new_name
from tests.contract.hall import Hall
from tests.contract.ping import Ping, hosted
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]

SEARCH = '{"page_size":10,"page_number":1}'


def text(**fields: Any) -> str:
    """JSON as a browser writes it."""
    return json.dumps(fields, separators=(",", ":"))


def check_grid(page: Any, identity: str) -> list[Any]:
    """The rows of a list: each has its id, and the footer has its total."""
    assert isinstance(page["total"], int)
    assert isinstance(page["content"], list)
    for row in page["content"]:
        assert row[identity]
        assert isinstance(row[identity], str)
    return list(page["content"])


def is_ms(value: Any) -> bool:
    """Whether it is a time as the console reads it: a number, and no text."""
    return isinstance(value, int) and value > 1_600_000_000_000


WIDGET = {
    "type": "dataCard",
    "name": "Data Card",
    "class": "data_card",
    "icon": "data:image/svg+xml;base64," + "A" * 4000,
    "defaultRow": 2,
    "minCol": 2,
    "config": {"title": "Temperature", "icons": None, "fractionDigits": "1"},
    "pos": {"i": "", "x": 0, "y": 0, "w": 3, "h": 2},
}


async def test_dashboard_page(browser: Browser, hall: Hall) -> None:
    """Add, fill with widgets of some kilobytes, show, fill again, delete."""
    one = (await browser.post("/dashboard", text(name=(name := new_name()))))["dashboard_id"]
    entity = {"value": hall.entities["led"], "rawData": {"entityKey": hall.key("led")}}
    filled = WIDGET | {"config": WIDGET["config"] | {"entity": entity}}
    widgets = [{"tempId": 1700000000000 + at, "data": filled} for at in range(4)]
    body = text(widgets=widgets, name=name)
    assert len(body) > 10_000
    await browser.put(f"/dashboard/{one}", body)
    shown = await _dashboard(browser, one)
    assert shown["name"] == name
    assert [widget["data"] for widget in shown["widgets"]] == [filled] * 4
    ids = [widget["widget_id"] for widget in shown["widgets"]]
    assert all(isinstance(each, str) and each for each in ids)
    assert len(set(ids)) == 4

    moved = [shown["widgets"][0] | {"data": filled | {"pos": WIDGET["pos"] | {"x": 4}}}]
    await browser.put(f"/dashboard/{one}", text(widgets=moved, name=name))
    assert (await _dashboard(browser, one))["widgets"] == moved
    await browser.delete(f"/dashboard/{one}")
    listed = await browser.get("/dashboard/dashboards")
    assert one not in {each["dashboard_id"] for each in listed}


async def _dashboard(browser: Browser, one: str) -> Any:
    """A dashboard in the list, where each has an id, and each widget an id and an object."""
    listed = await browser.get("/dashboard/dashboards")
    ids = [each["dashboard_id"] for each in listed]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(each, str) for each in ids)
    for each in listed:
        for widget in each.get("widgets", []):
            assert isinstance(widget["data"], dict)
            assert isinstance(widget["widget_id"], str)
    return next(each for each in listed if each["dashboard_id"] == one)


async def test_the_requests_of_widgets(browser: Browser, hall: Hall) -> None:
    """Cards, charts and gauges send each of these requests twice."""
    led, temperature = hall.entities["led"], hall.entities["temperature"]
    span = {"start_timestamp": 0, "end_timestamp": 4102444800000}
    for _ in range(2):
        status = await browser.get(f"/entity/{led}/status")
        assert isinstance(status["value"], bool)  # a switch looks at its truth
        body = text(entity_id=temperature, **span, page_number=1, page_size=999)
        rows = (await browser.post("/entity/history/search", body))["content"]
        assert all(is_ms(row["timestamp"]) for row in rows)
        assert isinstance(rows[0]["value"], int | float)
        for kind in ("LAST", "MIN", "MAX", "AVG", "SUM"):
            body = text(entity_id=temperature, aggregate_type=kind, **span)
            folded = await browser.post("/entity/history/aggregate", body)
            assert isinstance(folded["value"], int | float)
        body = text(entity_id=led, aggregate_type="COUNT", **span)
        counted = await browser.post("/entity/history/aggregate", body)
        assert all(set(row) >= {"value", "count"} for row in counted["count_result"])
    never = text(entity_id=hall.entities["secret"], aggregate_type="COUNT", **span)
    assert await browser.post("/entity/history/aggregate", never) == {}
    assert await browser.get(f"/entity/{hall.entities['secret']}/status") == {}


async def test_widget_dialog(browser: Browser, hall: Hall) -> None:
    """Entities to choose from: all of them, asked for as 99999."""
    body = (
        '{"entity_type":["PROPERTY"],"entity_value_type":["STRING","LONG","DOUBLE","BOOLEAN"],'
        '"entity_access_mod":["R","RW"],"exclude_children":true,"page_number":1,"page_size":99999}'
    )
    rows = check_grid(await browser.post("/entity/search", body), "entity_id")
    assert hall.key("temperature") in {row["entity_key"] for row in rows}
    found = await browser.post("/entity/search", body[:-1] + f',"keyword":"{hall.sn}"}}')
    assert {row["entity_key"].rpartition(".")[2] for row in found["content"]} == {
        "temperature", "counter", "battery", "lorawan_class", "led", "label",
    }  # fmt: skip


async def test_switch(browser: Browser, hall: Hall) -> None:
    """A switch sets its property; the device gets a boolean."""
    key = hall.key("led")
    for value in ("true", "false"):
        await browser.post("/entity/property/update", f'{{"exchange":{{"{key}":{value}}}}}')
        *_, command = await hall.api.commands(hall.sn, hall.secret)
        assert command["properties"] == {"led": value == "true"}
        reply = {"commandId": command["commandId"], "status": "SUCCESS"}
        await hall.api.reply(hall.sn, hall.secret, reply)


async def test_trigger(browser: Browser, hall: Hall) -> None:
    """A trigger asks for the children, then calls with an id that nobody needs."""
    service = hall.entities["measure"]
    offered = f'{{"entity_type":["SERVICE"],"entity_access_mod":["W","RW"],"keyword":"{hall.sn}"}}'
    found = await browser.post("/entity/search", offered)
    assert hall.key("measure") in {row["entity_key"] for row in found}
    (child,) = await browser.get(f"/entity/{service}/children")
    assert "W" in child["entity_access_mod"]  # or there is no field in the form
    for path, value, inputs in (
        ("measure", "{}", {}),
        ("measure.times", '"3"', {"times": 3}),
        ("reboot", "{}", {}),
        ("reboot", "null", {}),
    ):
        body = f'{{"entity_id":"{service}","exchange":{{"{hall.key(path)}":{value}}}}}'
        called = asyncio.create_task(browser.post("/entity/service/call", body))
        (command,) = await hall.api.commands(hall.sn, hall.secret)
        assert command.get("inputs", {}) == inputs
        reply = {"commandId": command["commandId"], "status": "SUCCESS"}
        await hall.api.reply(hall.sn, hall.secret, reply)
        assert await called == {}


async def test_device_page(browser: Browser, ping: Ping) -> None:
    """The list, the dialog whose form comes from the integration, the detail, rename, delete."""
    rows = check_grid(await browser.post("/device/search", SEARCH), "id")
    for row in rows:
        assert row["name"]
        assert row["integration_name"]
        assert is_ms(row["created_at"])
        assert isinstance(row["deletable"], bool)

    addable = await browser.post("/integration/search", '{"device_addable":true}')
    assert "ping" in {one["id"] for one in addable}
    detail = await browser.get("/integration/ping")
    for entity in detail["integration_entities"]:
        assert isinstance(entity["value_attribute"], dict)  # or the form is empty
    key = detail["add_device_service_key"]
    fields = [
        one
        for one in detail["integration_entities"]
        if key in one["key"] and one["value_type"] != "OBJECT"
    ]
    assert [one["key"] for one in fields] == ["ping.integration.add_device.ip"]

    name = new_name()
    params = f'{{"ping.integration.add_device.ip":"10.0.{len(rows)}.1"}}'
    body = f'{{"name":"{name}","integration":"ping","param_entities":{params}}}'
    await browser.post("/device", body)
    found = await browser.post("/device/search", text(page_size=10, page_number=1, name=name))
    (row,) = check_grid(found, "id")
    assert (row["integration_name"], row["deletable"]) == ("Ping", True)

    detail = await browser.get(f"/device/{row['id']}")
    assert detail["identifier"] == f"ping-10-0-{len(rows)}-1"
    assert is_ms(detail["created_at"])
    for entity in detail["entities"]:
        assert all(entity[field] for field in ("id", "key", "name", "type", "value_type"))
    assert [one["key"] for one in detail["entities"]] == [f"{row['key']}.delay"]
    await browser.put(f"/device/{row['id']}", f'{{"name":"{name} 2"}}')
    assert (await browser.get(f"/device/{row['id']}"))["name"] == f"{name} 2"
    await browser.post("/device/batch-delete", f'{{"device_id_list":["{row["id"]}"]}}')
    assert ping.gone == [detail["identifier"]]
    found = await browser.post("/device/search", text(page_size=10, page_number=1, name=name))
    assert (found["total"], found["content"]) == (0, [])


async def test_an_integration_refuses_a_device(browser: Browser, ping: Ping) -> None:
    """Its reason is shown, with the field of the form; no device is left behind."""
    key = f"{ping.manifest.id}.integration.add_device.ip"
    body = text(name=(name := new_name()), integration="ping", param_entities={key: "192.0.2.1"})
    headers = {"Content-Type": "application/json"}
    answer = await browser.http.post("/device", content=body, headers=headers)
    told = answer.json()
    assert (answer.status_code, told["status"]) == (400, "Failed")
    assert told["detail_message"] == f"param_entities.{key}"
    assert (await browser.post("/device/search", text(name=name)))["total"] == 0


async def test_a_number_as_text(browser: Browser) -> None:
    """The form of the simulator sends its interval as text."""
    params = {
        "simulator.integration.add_device.model": "CONTRACT-1",
        "simulator.integration.add_device.interval": "86400",
    }
    name = new_name()
    await browser.post("/device", text(name=name, integration="simulator", param_entities=params))
    found = await browser.post("/device/search", text(name=name, page_size=10, page_number=1))
    (device,) = found["content"]
    assert device["integration_name"] == "Simulator"
    await browser.post("/device/batch-delete", text(device_id_list=[device["id"]]))


async def test_integration_page(browser: Browser, ping: Ping, platform: Platform) -> None:
    """Cards with their counts and icons; icons come without a token."""
    found = await browser.post("/integration/search", "{}")
    assert isinstance(found, list)
    for entry in found:
        assert all(isinstance(entry[field], str) for field in ("id", "name", "icon", "description"))
        assert all(isinstance(entry[field], int) for field in ("device_count", "entity_count"))
        assert entry["icon"].startswith(("/public/", "https://"))
        if entry["icon"].startswith("/public/"):
            async with httpx.AsyncClient(base_url=platform.base_url) as plain:
                assert (await plain.get(f"/api/v1{entry['icon']}")).status_code == 200
    assert ping.manifest.icon in {entry["icon"] for entry in found}


async def test_integration_settings(browser: Browser, ping: Ping) -> None:
    """All writable properties are saved at once as text; an enumerated value is shown as text."""
    detail = await browser.get("/integration/ping")
    entities = detail["integration_entities"]
    writable = [
        entity
        for entity in entities
        if entity["type"] == "PROPERTY" and "W" in entity["access_mod"]
    ]
    assert [one["key"] for one in writable] == [
        "ping.integration.detect_status",
        "ping.integration.period",
    ]
    exchange = '{"ping.integration.detect_status":"1","ping.integration.period":"30"}'
    await browser.post("/entity/property/update", f'{{"exchange":{exchange}}}')
    assert ping.changed[-1] == {"detect_status": "1", "period": 30}
    detail = await browser.get("/integration/ping")
    values = {entity["key"]: entity.get("value") for entity in detail["integration_entities"]}
    assert values["ping.integration.detect_status"] == "1"  # compared with the keys of `enum`
    assert values["ping.integration.period"] == 30
    assert values["ping.integration.loss"] is None


async def test_integration_services(browser: Browser, ping: Ping) -> None:
    """Services without parameters and with one; children are found by `parent`."""
    entities = (await browser.get(f"/integration/{ping.manifest.id}"))["integration_entities"]
    (hops,) = [entity for entity in entities if entity.get("parent") == "ping.integration.trace"]
    assert hops["key"] == "ping.integration.trace.hops"
    body = '{"exchange":{"ping.integration.benchmark":{}}}'
    assert await browser.post("/entity/service/call", body) == {"called": "benchmark"}
    body = '{"exchange":{"ping.integration.trace.hops":"3"}}'
    assert await browser.post("/entity/service/call", body) == {"called": "trace", "hops": 3}


async def test_custom_entity_tab(browser: Browser) -> None:
    """`content` is there even when it is empty; bounds come as text."""
    body = '{"page_size":10,"page_number":1,"customized":true,"entity_type":["PROPERTY"]}'
    check_grid(await browser.post("/entity/search", body), "entity_id")
    nothing = await browser.post("/entity/search", body[:-1] + ',"keyword":"nothing is so"}')
    assert nothing["content"] == []
    identifier, name = uuid4().hex, new_name()
    made = (
        f'{{"name":"{name}","identifier":"{identifier}","type":"PROPERTY","access_mod":"RW",'
        '"value_type":"LONG","value_attribute":{"min":"0","max":"10"}}'
    )
    meta = await browser.post("/entity", made)
    assert meta["value_attribute"] == {"min": 0, "max": 10}
    found = await browser.post("/entity/search", body[:-1] + f',"keyword":"{identifier}"}}')
    (row,) = check_grid(found, "entity_id")
    assert is_ms(row["entity_created_at"])
    assert row["entity_value_attribute"] == {"min": 0, "max": 10}
    one = row["entity_id"]
    await browser.put(f"/entity/{one}", f'{{"name":"{name} 2"}}')
    found = await browser.post("/entity/search", body[:-1] + f',"keyword":"{name} 2"}}')
    assert [each["entity_id"] for each in found["content"]] == [one]
    await browser.post("/entity/delete", f'{{"entity_ids":["{one}"]}}')
    found = await browser.post("/entity/search", body[:-1] + f',"keyword":"{identifier}"}}')
    assert found["content"] == []


async def test_entity_data_tab(browser: Browser, hall: Hall) -> None:
    """All entities by key, the drawer with their history, and the export of those chosen."""
    body = '{"page_size":10,"page_number":1,"sorts":[{"direction":"ASC","property":"key"}]}'
    rows = check_grid(await browser.post("/entity/search", body), "entity_id")
    keys = [row["entity_key"] for row in rows]
    assert keys == sorted(keys)
    assert not any(":" in key for key in keys)  # the console would split it there
    led, label = hall.entities["led"], hall.entities["label"]
    body = f'{{"entity_id":"{led}","page_size":10,"page_number":1}}'
    page = await browser.post("/entity/history/search", body)
    assert page["total"] >= len(page["content"]) > 0

    query = f"&ids={led}&ids={label}&start_timestamp=0&end_timestamp=4102444799000"
    for url in (f"/entity/export?&ids={led}&ids={label}", f"/entity/export?{query}"):
        answer = await browser.http.get(url)
        assert answer.status_code == 200
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert {row["Entity Identifier"] for row in rows} == {hall.key("led"), hall.key("label")}


async def test_flow_editor_asks_for_all_entities(browser: Browser) -> None:
    """The editor's list of entities has no filter at all."""
    body = '{"page_number":1,"page_size":99999}'
    rows = check_grid(await browser.post("/entity/search", body), "entity_id")
    assert all(isinstance(row["entity_value_attribute"], dict) for row in rows)


async def test_an_integration_that_is_gone(platform: Platform, browser: Browser) -> None:
    """Its devices are listed without its name, and are deletable by themselves."""
    integration = f"gone-{uuid4().hex[:8]}"
    key, name = f"{integration}.integration.add_device.ip", new_name()
    async with hosted(platform, Ping(integration)):
        body = text(name=name, integration=integration, param_entities={key: "10.9.9.9"})
        await browser.post("/device", body)
    body = text(name=name, page_size=10, page_number=1)
    (row,) = (await browser.post("/device/search", body))["content"]
    headers = {"Content-Type": "application/json"}

    async def refused() -> bool:
        """An addition says that it is not there; never a half-made device, never a 500."""
        wanted = text(name=name, integration=integration, param_entities={key: "10.9.9.8"})
        answer = await browser.http.post("/device", content=wanted, headers=headers)
        assert answer.status_code == 503, answer.text
        return integration in answer.json()["error_message"]

    await until(refused)
    assert (await browser.post("/device/search", body))["total"] == 1
    await browser.get(f"/device/{row['id']}")
