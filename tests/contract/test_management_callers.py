"""Management API: flows that outsiders begin, over MQTT and HTTP, with the tenant's credentials."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import pytest

from tests.contract.console import Console, console_accepted, new_name
from tests.contract.hall import Hall

pytestmark = pytest.mark.xdist_group("platform")

PATIENCE = 20.0


def _node(node_id: str, component: str, **parameters: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "componentName": component,
        "type": component,
        "position": {"x": 0, "y": 0},
        "data": {"nodeName": node_id, "parameters": parameters},
    }


async def flow(admin: Console, entry: dict[str, Any]) -> str:
    """A flow that runs: its entry, and an output; its id."""
    nodes = [entry, _node("end", "output", outputVariables={"x": "#{properties.start}"})]
    edges = [{"id": "e", "source": entry["id"], "target": "end"}]
    design = json.dumps({"nodes": nodes, "edges": edges})
    body = {"name": new_name(), "design_data": design, "enabled": True}
    return str((await admin.done("POST", "/workflow/flows/design", body))["id"])


async def credential(admin: Console, kind: str) -> dict[str, Any]:
    path = f"/credentials/default/{kind}?auto_generate_password=true"
    found: dict[str, Any] = await admin.done("GET", path)
    return found


async def void(admin: Console, method: str, path: str, body: Any) -> None:
    """Ask for what answers nothing."""
    console_accepted(await admin.ask(method, path, body), data=False)


async def ran(admin: Console, flow_id: str, least: int = 1) -> list[Any]:
    """The log of a flow, once it has so many runs that have ended well."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await admin.done("POST", f"/workflow/flows/{flow_id}/logs/search", {})
            rows = found["content"] if isinstance(found, dict) else found
            if len(rows) >= least and all(row["status"] == "SUCCESS" for row in rows):
                return list(rows)
            await asyncio.sleep(0.05)


async def client(admin: Console, found: dict[str, Any], **more: Any) -> aiomqtt.Client:
    """An MQTT client outside, as the workflow editor tells people to connect one."""
    broker = await admin.done("GET", "/mqtt/broker-info")
    return aiomqtt.Client(
        urlsplit(str(admin.http.base_url)).hostname or "",
        broker["mqtt_port"],
        username=found["access_key"],
        password=found["access_secret"],
        timeout=5,
        **more,
    )


async def test_a_message_runs_the_flows_that_listen(hall: Hall, other_admin: Console) -> None:
    """QoS 0 and 1 are acknowledged as MQTT requires. Topics must begin with the tenant's prefix."""
    admin = hall.admin
    name = new_name("topic").replace(" ", "-")
    listens = await flow(admin, _node("start", "simpleMqtt", subscriptionTopic=f"{name}/+"))
    other = await flow(admin, _node("start", "simpleMqtt", subscriptionTopic=f"{name}/x/y"))
    found = await credential(admin, "MQTT")
    key = found["access_key"]
    theirs = (await credential(other_admin, "MQTT"))["access_key"]
    async with await client(admin, found) as outside:
        await outside.publish(f"beaver-iot/{key}/{name}/door", b"open", qos=0)
        await outside.publish(f"beaver-iot/{key}/{name}/door", b"shut", qos=1)
        await ran(admin, listens, 2)
        for topic in (f"beaver-iot/{theirs}/{name}/door", f"thing/{hall.sn}/up/report"):
            await outside.publish(topic, b'{"properties":{"led":true}}', qos=0)
    assert await ran(admin, other, 0) == []
    assert len(await ran(admin, listens, 2)) == 2


async def test_a_new_secret_closes_connections_with_the_old_one(hall: Hall) -> None:
    """The old secret is rejected afterwards."""
    admin = hall.admin
    body = {"credentials_type": "MQTT", "access_key": f"{new_name('c').replace(' ', '-')}@default"}
    await void(admin, "POST", "/credentials", body | {"access_secret": "first-one"})
    (found,) = [
        entry
        for entry in (await admin.done("GET", "/credentials?credentials_type=MQTT"))["content"]
        if entry["access_key"] == body["access_key"]
    ]

    async def stays() -> None:
        async with await client(admin, found) as outside:
            await outside.subscribe(f"beaver-iot/{found['access_key']}/#")
            await void(admin, "PUT", f"/credentials/{found['id']}", {"access_secret": "second-one"})
            async with asyncio.timeout(PATIENCE):
                await anext(aiter(outside.messages))

    with pytest.raises(aiomqtt.MqttError):
        await stays()
    with pytest.raises(aiomqtt.MqttError):
        await (await client(admin, found)).__aenter__()


async def test_an_address_is_called_through_the_gateway(hall: Hall) -> None:
    """The login reaches the service, with the path as it was written; who has none is 401."""
    admin, part = hall.admin, new_name("p").replace(" ", "-")
    called = await flow(admin, _node("start", "httpIn", method="PUT", url=f"{part}/{{id}}"))
    found = await credential(admin, "HTTP")
    path = f"/workflow-http-in/{found['access_key']}/{part}/a%2Fb"
    login = found["access_key"], found["access_secret"]
    for prefix in ("", "/api/v1"):
        answer = await admin.http.put(prefix + path, json={"a": 1}, auth=login)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"status", "request_id"}
    assert len(await ran(admin, called, 2)) == 2
    for wrong in (None, (login[0], "wrong-one")):
        answer = await admin.http.put(path, json={}, auth=wrong)
        assert (answer.status_code, answer.json()["error_code"]) == (401, "authentication_failed")
