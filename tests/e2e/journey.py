"""An existing console's order of calls, from the first registration to the last deletion.

Bodies are as such a console sends them (form encoding, numbers as strings, an empty object
with DELETE); every path is asked below `/api/v1`, as its build does.
"""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import aiohttp

from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import MODEL, PRODUCT, Platform
from tests.e2e.waiting import until

PASSWORD = "Correct1horse"


@dataclass
class Browser:
    """A console in a tenant of its own."""

    platform: Platform
    client_id: str
    client_secret: str
    session: aiohttp.ClientSession
    email: str = field(default_factory=lambda: f"{uuid4().hex}@example.com")
    token: str = ""

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that must succeed, judged as the console judges it."""
        headers = {"Accept-Language": "en"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with self.session.request(
            method, f"/api/v1{path}", json=body, headers=headers, params=query
        ) as answer:
            content = await answer.json()
            assert answer.status == 200, (path, answer.status, content)
            assert content["status"] == "Success"
            assert "error_code" not in content
            return content.get("data")

    async def fails(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Make a call that must be refused; return the body."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self.session.request(
            method, f"/api/v1{path}", json=body, headers=headers
        ) as answer:
            content = await answer.json()
            assert (answer.status, content["status"]) == (status, "Failed"), (path, content)
            return content

    async def log_in(self) -> None:
        """Send the form of the login page; read the tokens from the envelope."""
        form = {
            "grant_type": "password",
            "username": self.email,
            "password": PASSWORD,
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        async with self.session.post("/api/v1/oauth2/token", data=form) as answer:
            content = await answer.json()
            assert answer.status == 200, content
        assert content["access_token"] == content["data"]["access_token"]
        self.token = content["data"]["access_token"]

    async def application(self) -> Application:
        """Return an application of this tenant; only the open API can import products."""
        made = await self.ask("POST", "/application", {"name": "integrator"})
        return Application(self.platform, made["client_id"], made["client_secret"])


@asynccontextmanager
async def browsing(platform: Platform) -> AsyncIterator[Browser]:
    """Return a console for a tenant without users."""
    made = platform.command("tenant", "create", f"t-{uuid4().hex[:12]}")
    headers = {"TENANT_ID": made["name"]}
    async with platform.session(headers=headers) as session:
        yield Browser(platform, made["clientId"], made["clientSecret"], session)


async def travel(browser: Browser) -> None:
    """Register, sign in, add a device, see it live and in history, and delete everything."""
    await _registered(browser)
    application = await browser.application()
    device = await _added(browser, application)
    await _check_duplicate(browser, device)
    entity = await _entity(browser, f"direct.device.{device.sn}.temperature")
    dashboard = await _dashboard(browser, entity)

    query = {"Authorization": f"Bearer {browser.token}"}
    async with browser.session.ws_connect("/websocket", params=query) as socket:
        keys = [entity["entity_key"]]
        await socket.send_json({"event_type": "Exchange", "payload": {"entity_key": keys}})
        beat = json.dumps({"event_type": "Heartbeat", "payload": "ping"})
        await socket.send_str(beat)
        assert await socket.receive_str() == beat
        async with device.mqtt() as connection:
            for value in (20.5, 21.5, 22.5):
                await connection.send("report", {"properties": {"temperature": value}})
                assert await _next_value(socket, entity["entity_key"]) == value
            await _write_values(browser, device, connection)

    await _read(browser, entity)
    await _check_export(browser, entity, device)
    await _check_grants(browser, device, entity)
    await _check_flow(browser)
    await browser.ask("DELETE", f"/dashboard/{dashboard}", {})
    await browser.ask("POST", "/device/batch-delete", {"device_id_list": [str(device.id)]})
    found = await browser.ask("POST", "/device/search", {"page_size": 10, "page_number": 1})
    assert (found["total"], found["content"]) == (0, [])
    assert await browser.ask("GET", "/dashboard/dashboards") == []
    await application.close()


async def _registered(browser: Browser) -> None:
    assert (await browser.ask("GET", "/user/status"))["init"] is False
    person = {"email": browser.email, "nickname": "Ada", "password": PASSWORD}
    assert await browser.ask("POST", "/user/register", person) is None
    assert (await browser.ask("GET", "/user/status"))["init"] is True
    await browser.log_in()
    user = await browser.ask("GET", "/user")
    assert user["is_super_admin"] is user["super_admin"] is True
    assert user["email"] == browser.email


async def _added(browser: Browser, application: Application) -> Device:
    """Add a device as the dialog does: the form comes from the integration's add service."""
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    addable = await browser.ask("POST", "/integration/search", {"device_addable": True})
    direct = next(one for one in addable if one["id"] == "direct")
    assert (await browser.session.get(f"/api/v1{direct['icon']}")).status == 200
    detail = await browser.ask("GET", "/integration/direct")
    assert all("value_attribute" in entity for entity in detail["integration_entities"])
    form = [
        entity["key"]
        for entity in detail["integration_entities"]
        if entity["key"].startswith(f"{direct['add_device_service_key']}.")
    ]
    assert form == [f"{direct['add_device_service_key']}.{name}" for name in ("sn", "model")]
    model = next(one for one in detail["integration_entities"] if one["key"] == form[1])
    assert model["value_attribute"]["enum"][MODEL] == f"{PRODUCT['name']} ({MODEL})"
    sn = f"E2E{uuid4().hex[:12].upper()}"
    assert await browser.ask("POST", "/device", _addition(sn)) is None
    (found,) = (await browser.ask("POST", "/device/search", {"page_size": 10, "page_number": 1}))[
        "content"
    ]
    assert (found["name"], found["integration"], found["deletable"]) == ("Hall", "direct", True)
    assert isinstance(found["created_at"], int)
    key = (await browser.ask("GET", f"/device/{found['id']}"))["entities"][0]["key"]
    columns = {"DEVICE_ID": ("EQ", found["id"]), "ENTITY_TYPE": ("ANY_EQUALS", "PROPERTY")}
    asked = {name: {"operator": one, "values": [text]} for name, (one, text) in columns.items()}
    body = {"page_size": 10, "page_number": 1, "entity_filter": asked}
    page = await browser.ask("POST", "/entity/advanced-search", body)
    assert (page["content"][0]["entity_latest_value"], page["total"]) == (
        key,
        len(page["content"]) - 1,
    )
    return Device(application, int(found["id"]), sn, key)


def _addition(sn: str) -> Any:
    own = "direct.integration.add_device"
    params = {f"{own}.sn": sn, f"{own}.model": MODEL}
    return {"name": "Hall", "integration": "direct", "param_entities": params}


async def _check_duplicate(browser: Browser, device: Device) -> None:
    """Check that adding the same SN again fails and renames nothing."""
    refusal = await browser.fails(409, "POST", "/device", _addition(device.sn) | {"name": "Other"})
    assert refusal["detail_message"] == "param_entities.direct.integration.add_device.sn"
    (found,) = (await browser.ask("POST", "/device/search", {"page_size": 10, "page_number": 1}))[
        "content"
    ]
    assert found["name"] == "Hall"


async def _entity(browser: Browser, key: str) -> Any:
    body = {"keyword": key, "page_number": 1, "page_size": 99999}
    found = await browser.ask("POST", "/entity/search", body)
    return next(entry for entry in found["content"] if entry["entity_key"] == key)


async def _dashboard(browser: Browser, entity: Any) -> str:
    ref = await browser.ask("POST", "/dashboard", {"name": "Hall"})
    chosen = {"value": entity["entity_id"], "rawData": {"entityKey": entity["entity_key"]}}
    card = {"type": "dataCard", "config": {"entity": chosen}, "pos": {"x": 0, "y": 0}}
    body = {"name": "Hall", "widgets": [{"tempId": 1, "data": card}]}
    await browser.ask("PUT", f"/dashboard/{ref['dashboard_id']}", body)
    (shown,) = await browser.ask("GET", "/dashboard/dashboards")
    (widget,) = shown["widgets"]
    assert isinstance(widget["widget_id"], str)
    assert widget["data"] == card
    return str(ref["dashboard_id"])


async def _next_value(socket: aiohttp.ClientWebSocketResponse, key: str) -> Any:
    """Return the next value of a key."""
    while True:
        frame = json.loads(await asyncio.wait_for(socket.receive_str(), 30))
        if key in frame["payload"]["entity_key"]:
            return frame["payload"]["values"][key]["value"]


async def _write_values(browser: Browser, device: Device, connection: Any) -> None:
    """Write a property as the switch and the settings form do, and call a service."""
    key = f"direct.device.{device.sn}"
    exchange = {f"{key}.interval": "30"}
    assert await browser.ask("POST", "/entity/property/update", {"exchange": exchange}) is None
    command = await connection.command()
    assert (command["kind"], command["properties"]) == ("SET_PROPERTIES", {"interval": 30})
    await connection.answer(command)
    interval = await _entity(browser, f"{key}.interval")

    async def shown() -> bool:
        status = await browser.ask("GET", f"/entity/{interval['entity_id']}/status")
        return bool(status.get("value") == 30)

    await until(shown)
    offered = {"entity_type": ["SERVICE"], "entity_access_mod": ["W", "RW"], "keyword": device.sn}
    services = await browser.ask("POST", "/entity/search", offered)
    assert f"{key}.measure" in {one["entity_key"] for one in services}
    service = await _entity(browser, f"{key}.measure")
    children = await browser.ask("GET", f"/entity/{service['entity_id']}/children")
    assert [child["entity_key"] for child in children] == [f"{key}.measure.times"]
    body = {"entity_id": service["entity_id"], "exchange": {f"{key}.measure.times": "3"}}
    called = asyncio.create_task(browser.ask("POST", "/entity/service/call", body))
    command = await connection.command()
    assert (command["serviceId"], command["inputs"]) == ("measure", {"times": 3})
    await connection.answer(command)
    await called


async def _read(browser: Browser, entity: Any) -> None:
    """Latest value, history and aggregates, as widgets ask for them."""
    status = await browser.ask("GET", f"/entity/{entity['entity_id']}/status")
    assert (status["value"], status["value_type"]) == (22.5, "DOUBLE")
    window = {"entity_id": entity["entity_id"], "start_timestamp": 0, "end_timestamp": 2**42}
    page = await browser.ask(
        "POST", "/entity/history/search", {**window, "page_number": 1, "page_size": 999}
    )
    assert [row["value"] for row in page["content"]] == [22.5, 21.5, 20.5]
    assert all(isinstance(row["timestamp"], int) for row in page["content"])
    expected = {"LAST": 22.5, "MIN": 20.5, "MAX": 22.5, "AVG": 21.5, "SUM": 64.5}
    for kind, value in expected.items():
        found = await browser.ask(
            "POST", "/entity/history/aggregate", {**window, "aggregate_type": kind}
        )
        assert found["value"] == value, kind
    counted = await browser.ask(
        "POST", "/entity/history/aggregate", {**window, "aggregate_type": "COUNT"}
    )
    assert {row["value"]: row["count"] for row in counted["count_result"]} == {
        20.5: 1,
        21.5: 1,
        22.5: 1,
    }


async def _check_grants(browser: Browser, device: Device, entity: Any) -> None:
    """Check that a user with a grant for one of two entities sees only that one."""
    hidden = await _entity(browser, f"direct.device.{device.sn}.interval")
    email = f"{uuid4().hex}@example.com"
    person = {"email": email, "nickname": "Bo", "password": PASSWORD}
    await browser.ask("POST", "/user/members", person)
    (found,) = await browser.ask("POST", "/user/members/search", {"keyword": email})
    role = (await browser.ask("POST", "/user/roles", {"name": "Viewers"}))["role_id"]
    menus = await browser.ask("GET", "/user/menus")
    page = next(menu for menu in menus if menu["code"] == "dashboard")
    view = next(child["menu_id"] for child in page["children"] if child["code"] == "dashboard.view")
    resource = {"id": entity["entity_id"], "type": "ENTITY"}
    for what, body in (
        ("menu", {"menu_ids": [view]}),
        ("user", {"user_ids": [found["user_id"]]}),
        ("resource", {"resources": [resource]}),
    ):
        await browser.ask("POST", f"/user/roles/{role}/associate-{what}", body)
    colleague = replace(browser, email=email, token="")
    await colleague.log_in()
    ids = [hidden["entity_id"], entity["entity_id"]]
    seen, unseen = await asyncio.gather(
        colleague.ask("GET", f"/entity/{ids[1]}/status"),
        colleague.ask("GET", f"/entity/{ids[0]}/status"),
    )
    assert (seen["value"], unseen) == (22.5, {})
    both = {"entity_ids": ids, "page_number": 1, "page_size": 999}
    rows = (await colleague.ask("POST", "/entity/history/search", both))["content"]
    assert {row["entity_id"] for row in rows} == {ids[1]}


async def _check_flow(browser: Browser) -> None:
    """Build a flow from the palette, test it, fix it, save it and call it."""
    palette = await browser.ask("GET", "/workflow/components")
    data = {row["name"]: json.loads(row["data"]) for rows in palette.values() for row in rows}
    assert data["httpIn"]["properties"]["method"]["enum"]["PUT"] == "PUT"
    assert data["httpRequest"]["properties"]["method"]["enum"]["GET"] == "GET"
    assert not data["choice"]["component"]["testable"]
    place = {"position": {"x": 0, "y": 0}}
    config = {"identify": "degrees", "name": "Degrees", "type": "DOUBLE"}
    start = {"id": "start", "type": "trigger", "componentName": "trigger", **place}
    start["data"] = {"nodeName": "Start", "parameters": {"entityConfigs": [config]}}
    end = {"id": "end", "type": "output", **place}  # it has no component of its own for this one
    end["data"] = {"nodeName": "End", "parameters": {"outputVariables": {"d": "#{properties.x}"}}}
    design = {"nodes": [start, end], "edges": [{"id": "e", "source": "start", "target": "end"}]}

    wanted = {"input": {"degrees": 5}, "design_data": json.dumps(design)}
    tried = await browser.ask("POST", "/workflow/flows/design/test", wanted)
    (fault,) = tried["trace_infos"]
    assert (tried["status"], fault["node_id"]) == ("ERROR", "end")
    assert "node x" in fault["error_message"]
    end["data"]["parameters"]["outputVariables"]["d"] = "#{properties.start['degrees']}"
    wanted["design_data"] = json.dumps(design)
    tried = await browser.ask("POST", "/workflow/flows/design/test", wanted)
    assert tried["trace_infos"][-1]["output"] == '{"d":5}'

    flow = {"name": "Drawn", "enabled": True, "design_data": wanted["design_data"]}
    saved = await browser.ask("POST", "/workflow/flows/design", flow)
    key = f"system.integration.{saved['id']}"
    offered = {"keyword": key, "entity_access_mod": ["W", "RW"]}
    shown = await browser.ask("POST", "/entity/search", offered)
    assert {entry["entity_key"] for entry in shown} == {key, f"{key}.degrees"}
    called = {"exchange": {f"{key}.degrees": 7}}
    assert await browser.ask("POST", "/entity/service/call", called) == {"d": 7}
    await browser.ask("GET", f"/workflow/flows/{saved['id']}/disable")
    await browser.ask("POST", "/workflow/flows/batch-delete", {"workflow_id_list": [saved["id"]]})


async def _check_export(browser: Browser, entity: Any, device: Device) -> None:
    """Check the CSV of the console's export; its query begins with `&`."""
    url = f"/api/v1/entity/export?&ids={entity['entity_id']}&start_timestamp=0"
    headers = {"Authorization": f"Bearer {browser.token}"}
    async with browser.session.get(url, headers=headers) as answer:
        assert answer.status == 200
        assert "attachment" in answer.headers["Content-Disposition"]
        rows = list(csv.DictReader(io.StringIO((await answer.text()).removeprefix("\ufeff"))))
    assert sorted(row["Value"] for row in rows) == ["20.5", "21.5", "22.5"]
    assert {row["Device"] for row in rows} == {"Hall"}
    assert {row["Entity Identifier"] for row in rows} == {f"direct.device.{device.sn}.temperature"}
