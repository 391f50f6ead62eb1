"""What happens to a report is one trace, across processes, the bus and batches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from tests.e2e.callers import Console
from tests.e2e.devices import Device
from tests.e2e.test_flows import FLOWS, save
from tests.e2e.traces import Seen, receiver
from tests.e2e.waiting import PATIENCE, until
from tests.integration.workflow.designs import design, edge, node

pytestmark = pytest.mark.xdist_group("platform")

STRANGER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""A `traceparent` that comes from outside."""
LINK = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
"""What it names."""
MOST = 200
"""A number of reports with at least one recorded trace, except in one run of a thousand million."""


@asynccontextmanager
async def hook(hold: asyncio.Event | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve another system's address; return it and the `traceparent` of each request.

    With `hold` it answers only after that is set.
    """
    heard: list[str] = []

    async def record(request: web.Request) -> web.Response:
        heard.append(request.headers.get("traceparent", ""))
        if hold is not None:
            await hold.wait()
        return web.Response()

    application = web.Application()
    application.router.add_post("/", record)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", heard
    finally:
        await runner.cleanup()


@asynccontextmanager
async def telling(console: Console, device: Device, url: str) -> AsyncIterator[None]:
    """Run a flow that calls a hook with each temperature of a device."""
    listen = node("listen", "eventListener", entities=[f"direct.device.{device.sn}.temperature"])
    flow = await save(
        console, design([listen, node("tell", "webhook", webhookUrl=url)], edge("listen", "tell"))
    )
    yield
    await console.data("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow]})


async def way_to_report(device: Device, report: Callable[[], Awaitable[object]]) -> list[Seen]:
    """Report until a trace from before ingest is recorded; return its span and its parents."""
    spans = receiver()

    async def recorded() -> Seen | None:
        await report()
        mine = (one for one in list(spans.spans) if one.attributes.get("thingway.sn") == device.sn)
        return next((one for one in mine if one.parent), None)

    return await spans.way_to(await until(recorded))


async def test_a_trace_goes_from_an_mqtt_report_to_the_hook_of_a_flow(
    console: Console, device: Device
) -> None:
    """It starts where the report arrives; the batches on its way link to it."""
    spans = receiver()
    async with (
        hook() as (url, heard),
        telling(console, device, url),
        device.mqtt() as connection,
        console.live(f"direct.device.{device.sn}.temperature"),
    ):

        async def listens() -> bool:
            await connection.report({"temperature": 30.0})
            return bool(heard)

        await until(listens)  # a saved flow listens some milliseconds later
        for number in range(MOST):
            heard.clear()
            await connection.report({"temperature": 31.0 + number})
            await until(lambda: _received(heard))
            if parent := heard[-1]:
                break
    _, trace, called, _ = parent.split("-")
    way = await spans.way_to(await spans.first(lambda one: one.link == (trace, called)))
    assert [(one.service.removeprefix("thingway-"), one.name) for one in way] == [
        ("workflow", "POST"),
        ("workflow", "node webhook"),
        ("workflow", "run flow"),
        ("device-ingest", "ingest message"),
    ]
    report = way[-1]
    assert report.attributes["thingway.sn"] == device.sn
    assert way[0].attributes["http.response.status_code"] == 200
    (stored,) = report.links
    for name in ("ingest batch", "workflow batch", "live batch"):
        joined = await spans.first(
            lambda one, name=name: one.name == name and report.link in one.links
        )
        assert joined.trace != report.trace
        assert (joined.link == stored) == (name == "ingest batch")


async def test_a_trace_of_an_http_report_begins_at_the_gateway(device: Device) -> None:
    """A client's trace context is a link only: its id and sampling are not used."""
    authorization = aiohttp.encode_basic_auth(device.sn, device.key)
    headers = {"Authorization": authorization, "traceparent": STRANGER, "tracestate": "x=1"}
    async with aiohttp.ClientSession(device.application.platform.base_url) as session:

        async def report() -> None:
            path, body = f"/ingest/v1/{device.sn}/report", {"properties": {"temperature": 12.5}}
            async with session.post(path, headers=headers, json=body) as answer:
                assert answer.status == 202, await answer.text()

        way = await way_to_report(device, report)
    services = ["thingway-device-ingest", "thingway-device", "thingway-gateway"]
    assert [one.service for one in way] == services
    assert way[-1].links == {LINK}
    assert way[-1].trace != LINK[0]


async def test_a_trace_of_a_plain_nats_report_begins_at_the_relay(device: Device) -> None:
    """A client's trace context is a link there too."""
    subject, body = f"thing.{device.sn}.up.report", b'{"properties": {"temperature": 13.5}}'
    async with device.nats() as client:
        way = await way_to_report(
            device,
            lambda: client.request(
                subject, body, timeout=PATIENCE, headers={"traceparent": STRANGER}
            ),
        )
    assert [one.service for one in way] == ["thingway-device-ingest", "thingway-gateway-bus"]
    assert way[-1].links == {LINK}


async def _received(heard: list[str]) -> list[str]:
    return heard
