"""Management API: live updates over MQTT at the gateway's `/mqtt`, as newest consoles want them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import pytest

from tests.contract.console import Console
from tests.contract.hall import Hall, add_custom

pytestmark = pytest.mark.xdist_group("platform")

PATIENCE = 20.0


@asynccontextmanager
async def page(console: Console) -> AsyncIterator[tuple[aiomqtt.Client, str]]:
    """A page of a console: its connection, and its topic, to which it is subscribed."""
    broker = await console.done("GET", "/mqtt/broker-info")
    given = await console.done("GET", "/mqtt/web/credentials")
    origin = urlsplit(str(console.http.base_url))
    connecting = aiomqtt.Client(
        origin.hostname or "",
        origin.port or 80,
        identifier=given["client_id"],
        username=given["username"],
        password=given["password"],
        transport="websockets",
        websocket_path=broker["ws_path"],
        keepalive=50,
    )
    topic = f"beaver-iot/{given['username']}/downlink/web/exchange"
    async with connecting as client:
        await client.subscribe(topic)
        yield client, topic


async def told(client: aiomqtt.Client) -> tuple[str, set[str]]:
    """Topic and ids of the next message."""
    async with asyncio.timeout(PATIENCE):
        message = await anext(client.messages)
    body: Any = json.loads(bytes(message.payload))
    assert body["event_type"] == "EXCHANGE"
    return str(message.topic), set(body["payload"]["entity_ids"])


async def until_told(client: aiomqtt.Client, *ids: str) -> None:
    """Wait until all of these were told."""
    found: set[str] = set()
    while not found.issuperset(ids):
        found |= (await told(client))[1]


async def test_ids_of_changed_entities_are_sent(hall: Hall) -> None:
    """They include those of a device's members, an OBJECT and its children, and a custom entity."""
    custom = await add_custom(hall.admin)
    async with page(hall.admin) as (client, topic):
        await hall.report(temperature=21.5, reporting_interval={"time": 5, "unit": "1"})
        paths = ("temperature", "reporting_interval", "reporting_interval.time")
        expected = {hall.entities[path] for path in paths}
        found: set[str] = set()
        while not expected <= found:
            at, ids = await told(client)
            assert at == topic
            found |= ids
        await hall.admin.ask("POST", "/entity/property/update", {"exchange": {custom["key"]: 4}})
        while custom["id"] not in found:
            found |= (await told(client))[1]


async def test_only_granted_entities_are_sent(hall: Hall, other_admin: Console) -> None:
    """Users without the grant and other tenants receive nothing."""
    granted = await hall.person("dashboard.view", grants=(("ENTITY", hall.entities["led"]),))
    nobody = await hall.person("dashboard.view")
    async with (
        page(granted) as (one, _),
        page(nobody) as (two, _),
        page(other_admin) as (three, _),
    ):
        await hall.report(led=True, counter=5)
        assert (await told(one))[1] == {hall.entities["led"]}
        assert (len(two.messages), len(three.messages)) == (0, 0)


async def test_a_password_that_is_reset_ends_the_pages(hall: Hall) -> None:
    """Within a second, and they do not come in again."""
    person = await hall.person("dashboard.view")
    path = f"/user/members/{person.id}/change-password"

    async def ends() -> None:
        async with page(person) as (client, _):
            answer = await hall.admin.ask("PUT", path, {"password": "Another22"})
            assert answer.status_code == 200
            await told(client)

    with pytest.raises(aiomqtt.MqttError):
        await ends()


async def test_devices_and_pages_do_not_come_in_at_each_others_door(hall: Hall) -> None:
    """A device's key opens no page, and a page's password opens no device's MQTT."""
    origin = urlsplit(str(hall.admin.http.base_url))
    with pytest.raises(aiomqtt.MqttError, match=r"code:5|Not authorized"):
        async with aiomqtt.Client(
            origin.hostname or "",
            origin.port or 80,
            username=hall.sn,
            password=hall.secret,
            transport="websockets",
            websocket_path="/mqtt",
        ):
            pass
    given = await hall.admin.done("GET", "/mqtt/web/credentials")
    broker = await hall.admin.done("GET", "/mqtt/broker-info")
    with pytest.raises(aiomqtt.MqttError, match=r"code:[45]|[Nn]ot authori[sz]ed"):
        async with aiomqtt.Client(
            origin.hostname or "",
            broker["mqtt_port"],
            username=given["username"],
            password=given["password"],
        ):
            pass
