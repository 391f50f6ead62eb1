"""`thingway-client` against the running platform, in both its forms."""

import asyncio
import json
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from thingway_client import (
    AsyncThingway,
    CommandFailed,
    CommandPending,
    Event,
    Record,
    Refused,
    Thingway,
)

from libs.common.clock import now_ms
from tests.e2e.devices import Device
from tests.e2e.platform import MODEL, Platform

pytestmark = pytest.mark.xdist_group("platform")

DOCUMENT = Path(__file__).parents[2] / "clients/python/openapi.json"


@pytest.fixture
async def client(platform: Platform, application):
    nats_url = f"nats://127.0.0.1:{platform.nats_port}"
    login = (application.client_id, application.client_secret)
    async with AsyncThingway(platform.base_url, *login, nats_url=nats_url) as found:
        yield found


async def test_it_is_generated_from_the_document_that_is_served(platform: Platform):
    """`curl …/openapi/device.json

    python -m json.tool --indent 1` writes the file anew.
    """
    url = f"{platform.base_url}/openapi/device.json"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        assert json.loads(DOCUMENT.read_bytes()) == await answer.json()


async def test_a_device_from_its_addition_to_its_end(application, client: AsyncThingway):
    """Added, listed, renamed, configured, read, deleted; then it is refused by name."""
    sn = f"PY{uuid4().hex[:12].upper()}"
    added = await client.add_device(sn, "Roof", model=MODEL, tag=["new"])
    key = await client.issue_key(added.device_id)
    device = Device(application, added.device_id, key.sn, key.key)
    await client.update_device(added.device_id, "Cellar")
    found = [one async for one in client.devices(sn=sn, page_size=1)]
    assert [(entry.name, entry.model, entry.tag) for entry in found] == [("Cellar", MODEL, ["new"])]
    specification = await client.thing_specification(added.device_id)
    assert "temperature" in [one.id for one in specification.properties]
    await device.http("POST", "report", {"properties": {"interval": 5}}, wait="stored")
    assert (await client.config(added.device_id)).properties.to_dict() == {"interval": 5}
    await client.delete_device(added.device_id)
    with pytest.raises(Refused) as refused:
        await client.device(added.device_id)
    assert (refused.value.status, refused.value.code) == (404, "device_not_found")
    assert refused.value.request_id


async def test_history_comes_page_by_page(client: AsyncThingway, device: Device):
    """History works in both orders, within bounds, and as tables."""
    first = now_ms() - 1000
    reports = [{"ts": first + n, "properties": {"temperature": n + 0.5}} for n in range(5)]
    await device.http("POST", "report", reports, wait="stored")
    pages = client.history(device.id, first, first + 3, page_size=2, order="desc")
    assert [record async for record in pages] == [
        Record(first + 3 - n, {"temperature": 3.5 - n}) for n in range(4)
    ]
    table = await client.history(device.id, first).to_pandas()
    assert table["temperature"].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert str(table.index.tz) == "UTC"
    arrow = await client.history(device.id, first, page_size=2).to_arrow()
    assert arrow.column_names == ["ts", "temperature"]
    assert arrow.num_rows == 5


async def test_commands_can_be_waited_for(client: AsyncThingway, device: Device):
    """A device executes one command, refuses one, and has not received another."""
    waiting = await client.set_properties(device.id, {"interval": 10})
    with pytest.raises(CommandPending):
        await waiting.wait(timeout=0.1)
    async with device.mqtt() as mqtt:
        await mqtt.answer(await mqtt.command())
        assert (await waiting.wait()).status.value == "SUCCESS"
        call = await client.call_service(device.id, "measure", {"times": 2})
        await mqtt.answer(await mqtt.command(), outputs={"mean": 20.5})
        assert (await call.wait()).outputs.to_dict() == {"mean": 20.5}
        tasks = await client.create_tasks("TSL", [device.id], {"properties": {"interval": 20}})
        await mqtt.answer(await mqtt.command(), status="FAILED")
        with pytest.raises(CommandFailed):
            await tasks[device.id].wait()


async def test_events_are_received_and_resumed(client: AsyncThingway, device: Device):
    """The durable position stays at the event whose handler failed."""

    async def next_report(durable: bool) -> Event:
        async for event in client.events("device.*.reported", durable=durable):
            if event.body["device"]["deviceId"] == device.id:
                return event
        raise AssertionError("the events ended")

    async def report(value: float) -> None:
        await device.http("POST", "report", {"properties": {"temperature": value}}, wait="stored")

    await report(1.5)
    assert (await next_report(durable=True)).body["properties"] == {"temperature": 1.5}
    await report(2.5)
    again = await next_report(durable=True)
    assert again.body["properties"] in ({"temperature": 1.5}, {"temperature": 2.5})
    live = asyncio.ensure_future(next_report(durable=False))
    while not live.done():
        await report(3.5)
    assert (await live).kind == "device.reported"


async def test_a_token_that_has_ended_is_renewed(platform, console, other_application):
    """A new list of allowed addresses ends all tokens; the next request fetches one."""
    login = (other_application.client_id, other_application.client_secret)
    async with AsyncThingway(platform.base_url, *login) as client:
        assert [device async for device in client.devices()] == []
        path = f"/application/{other_application.id}/allowed-addresses"
        await console.data("PUT", path, {"allowed_addresses": ["127.0.0.0/8"]})
        assert [device async for device in client.devices()] == []


async def test_the_blocking_form_does_the_same(platform: Platform, application, device: Device):
    """Reads, writes, waits and listens without an event loop of its caller."""
    await device.http("POST", "report", {"properties": {"temperature": 7.5}}, wait="stored")
    nats_url = f"nats://127.0.0.1:{platform.nats_port}"

    def script() -> tuple[list[Record], Event]:
        login = (application.client_id, application.client_secret)
        with Thingway(platform.base_url, *login, nats_url=nats_url) as thingway:
            assert thingway.device(device.id).sn == device.sn
            assert device.id in [one.device_id for one in thingway.devices()]
            values = thingway.history(device.id, order="desc").to_list()
            for event in thingway.events("device.*.reported", durable=True):
                if event.body["device"]["deviceId"] == device.id:
                    return values, event
        raise AssertionError("the events ended")

    values, event = await asyncio.to_thread(script)
    assert [one.properties for one in values] == [{"temperature": 7.5}]
    assert event.body["properties"] == {"temperature": 7.5}
