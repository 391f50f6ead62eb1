"""Flows that are built through the API react to what devices report over MQTT."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.callers import Application, Console
from tests.e2e.devices import Device
from tests.e2e.waiting import until
from tests.integration.workflow.designs import choice, design, edge, node, when

pytestmark = pytest.mark.xdist_group("platform")

FLOWS = "/workflow/flows"
Json = dict[str, Any]


async def save(console: Console, text: str) -> str:
    """Save a flow that is enabled; return its id."""
    body = {"name": f"flow {uuid4().hex[:8]}", "enabled": True, "design_data": text}
    return str((await console.data("POST", f"{FLOWS}/design", body))["id"])


async def runs(console: Console, flow: str, number: int) -> list[Json]:
    """Wait for `number` runs in the log of a flow; return them, newest first."""

    async def enough() -> list[Json]:
        found: list[Json] = await console.data("POST", f"{FLOWS}/{flow}/logs/search", {})
        return found if len(found) >= number else []

    return await until(enough)


def cooling(heard: str, written: str) -> str:
    """Above 30 degrees the other device's LED goes on, and its interval follows."""
    value = f"#{{properties.listen['{heard}']}}"
    return design(
        [
            node("listen", "eventListener", entities=[heard]),
            choice(when("hot", value, "GT", "30")),
            node("set", "entityAssigner", exchangePayload={f"{written}.led": True}),
        ],
        edge("listen", "fork"),
        edge("fork", "set", "hot"),
    )


async def test_a_report_sets_another_device(
    application: Application, console: Console, device: Device
) -> None:
    """The log has each node's input and output; a cool report changes nothing."""
    other = await application.add_device()
    heard, written = f"direct.device.{device.sn}.temperature", f"direct.device.{other.sn}"
    flow = await save(console, cooling(heard, written))
    async with device.mqtt() as reporting, other.mqtt() as listening:
        await reporting.report({"temperature": 21.0, "interval": 5})
        (cool,) = await runs(console, flow, 1)
        await reporting.report({"temperature": 35.5})
        command = await listening.command()
        assert command["properties"] == {"led": True}
        await listening.answer(command)
        hot, _ = await runs(console, flow, 2)
    assert (cool["status"], hot["status"]) == ("SUCCESS", "SUCCESS")
    traced = (await console.data("GET", f"{FLOWS}/logs/{hot['id']}"))["trace_info"]
    assert [one["node_id"] for one in traced] == ["listen", "fork", "set"]
    assert json.loads(traced[0]["output"]) == {heard: 35.5}
    assert json.loads(traced[2]["output"]) == {f"{written}.led": True}
    assert all(one["time_cost"] >= 0 for one in traced)
    traced = (await console.data("GET", f"{FLOWS}/logs/{cool['id']}"))["trace_info"]
    assert [one["node_id"] for one in traced] == ["listen", "fork"]
    await console.data("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow]})


async def test_a_flow_that_feeds_itself_stops(console: Console) -> None:
    """Eight runs, then one that is logged and not carried out, and nothing after it."""
    identifier = uuid4().hex
    made = await console.data(
        "POST",
        "/entity",
        {
            "name": "Counter",
            "identifier": identifier,
            "type": "PROPERTY",
            "access_mod": "RW",
            "value_type": "LONG",
            "value_attribute": {},
        },
    )
    key = made["key"]
    text = design(
        [
            node("listen", "eventListener", entities=[key]),
            node(
                "set", "entityAssigner", exchangePayload={key: f"#{{properties.listen['{key}']}}"}
            ),
        ],
        edge("listen", "set"),
    )
    flow = await save(console, text)
    await console.data("POST", "/entity/property/update", {"exchange": {key: 1}})

    newest, *others = await runs(console, flow, 9)
    assert [other["status"] for other in others] == ["SUCCESS"] * 8
    stopped = await console.data("GET", f"{FLOWS}/logs/{newest['id']}")
    assert (stopped["status"], stopped["trace_info"]) == ("ERROR", [])
    assert "8 flows have started one another" in stopped["error_message"]
    await console.data("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow]})
