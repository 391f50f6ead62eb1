"""The console in a real browser: somebody builds a dashboard, and draws a flow."""

import asyncio
import json
from typing import Any

import pytest

from tests.contract.client import Api
from tests.contract.conftest import Thing
from tests.contract.console import PASSWORD, Console, console_accepted, new_email, new_name
from tests.contract.hall import add_custom
from tests.e2e.platform import Platform
from tests.node import node

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("contract")]

CARD = {
    "type": "dataCard",
    "class": "data_card",
    "config": {"title": "Theirs", "entity": {"value": "1", "rawData": {"entityKey": "a.b.c"}}},
    "pos": {"w": 3, "h": 2, "x": 9, "y": 0, "i": "1", "moved": False},
    "defaultRow": 4,
}
MAP = {"type": "map", "config": {"devices": []}, "pos": {"w": 3, "h": 2, "x": 6, "y": 0, "i": "2"}}
DESIGN = """{ "nodes": [ {"id": "start", "type": "trigger", "componentName": "trigger",
 "position": {"x": 10.5, "y": 20}, "measured": {"width": 240}, "data": {"nodeName": "In",
 "own": [1, null], "parameters": {"entityConfigs": []}}},
 {"id": "odd", "type": "hologram", "position": {"x": 400, "y": 20}, "data": {"parameters": {}}} ],
 "edges": [ {"id": "x1", "source": "start", "target": "odd", "type": "addable", "data": {}} ],
 "viewport": {"x": 1, "y": 2, "zoom": 0.75}, "note": "kept" }"""


@pytest.fixture
async def person(platform: Platform, admin: Console) -> dict[str, Any]:
    """What a journey of a super-admin is given."""
    email = new_email()
    user = await admin.add_user(email)
    await admin.done("POST", "/user/roles/1/associate-user", {"user_ids": [user]})
    return {"baseUrl": platform.base_url, "email": email, "password": PASSWORD}


async def travel(journey: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a journey found, without any problem."""
    text = await asyncio.to_thread(node, f"console/{journey}.mjs", json.dumps(given))
    found: dict[str, Any] = json.loads(text)
    assert found.pop("problems") == []
    return found


async def test_somebody_builds_a_board_beside_widgets_of_another_console(
    admin: Console, api: Api, warming: Thing, person: dict[str, Any]
) -> None:
    """It is laid out by keys and by dragging, seen live, and leaves theirs as they were."""
    name = new_name()
    lamp = f"Lamp {name}"
    await add_custom(admin, name=lamp, value_type="BOOLEAN", access_mod="RW")
    made = await admin.done("POST", "/dashboard", {"name": name})
    canvas = f"/canvas/{made['main_canvas_id']}"
    theirs = [{"data": CARD}, {"data": MAP}]
    saved = await admin.ask("PUT", canvas, {"name": name, "widgets": theirs})
    console_accepted(saved, data=False)
    before = (await admin.done("GET", canvas))["widgets"]

    device = {
        "name": (await api.done("GET", f"/devices/{warming.id}"))["name"],
        "sn": warming.sn,
    }
    given = {**person, "device": device, "toggle": {"name": lamp}, "board": name}
    found = await travel("dashboards", given)

    assert found == {
        "told": "Column 6, row 10, 5 wide, 2 high",
        "keys": 0,
        "commands": [True, True],
        "dragged": True,
        "changed": True,
        "seen": True,
        "fits": True,
    }
    after = await admin.done("GET", canvas)
    assert [widget for widget in after["widgets"] if widget["data"]["type"] != "thingway"] == before
    kinds = [
        widget["data"]["kind"]
        for widget in after["widgets"]
        if widget["data"]["type"] == "thingway"
    ]
    assert set(kinds) == {
        "value", "gauge", "line", "bar", "table", "switch", "status", "command", "text", "image",
    }  # fmt: skip
    assert len(after["entity_ids"]) == 2


async def test_somebody_draws_a_flow_and_follows_its_run(
    admin: Console, person: dict[str, Any]
) -> None:
    """Drawn, tested, enabled, run, traced and changed; what another editor made stays as it was.

    An empty condition is a problem; what is true or false is chosen.
    """
    theirs = {"name": new_name(), "design_data": DESIGN}
    other = (await admin.done("POST", "/workflow/flows/design", theirs))["id"]

    lamp = f"Lamp {new_name()}"
    await add_custom(admin, name=lamp, value_type="BOOLEAN", access_mod="RW")

    given = {**person, "name": new_name(), "theirs": other, "lamp": lamp}
    found = await travel("flows", given)

    assert found.pop("fault")
    assert found.pop("id")
    assert found == {
        "tested": {"tables": 3},
        "called": {"tables": 5},
        "given": {"guests": 25},
        "ran": 3,
        "imported": 3,
    }
    kept = await admin.done("GET", f"/workflow/flows/{other}/design")
    assert (kept["remark"], kept["version"], kept["design_data"]) == ("Looked at", 1, DESIGN)
