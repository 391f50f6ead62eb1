"""What alerts and dashboards ask for is what a running platform shows at `/metrics`."""

import asyncio
import re
from collections.abc import Iterator

import aiohttp
import pytest
import yaml

from deploy.local.process import PROJECT_ROOT
from deploy.observability.dashboards import DASHBOARDS
from deploy.platform.services import internal_port_names
from tests.e2e.callers import Console
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.test_traces import hook, telling
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")

ALERTS = PROJECT_ROOT / "deploy/observability/alerts.yaml"
WAITING = "thingway_flow_runs_waiting"
"""Shown while runs wait."""
FEW_RUNS = 40
"""More than a flow may have going on at once (`eachRuns`)."""
MANY_POLLS = 5
"""More than a device may have waiting at once (`eachPolls`)."""


def _queries() -> Iterator[str]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for page in DASHBOARDS:
        for panel in page.panels:
            yield from panel.lines.values()


RARE = {
    "thingway_stream_recreated_timestamp_seconds",  # after a stream was lost
    "thingway_certificate_expires_timestamp_seconds",  # with TLS
}
WANTED = {
    name for query in _queries() for name in re.findall(r"\b(?:thingway|process)_\w+", query)
} - RARE


async def shown(platform: Platform) -> set[str]:
    """Return the names of all series of all services."""
    ports = [platform.state.ports[name] for name in internal_port_names()]
    found = set()
    async with aiohttp.ClientSession() as session:
        for base in (platform.base_url, *(f"http://127.0.0.1:{port}" for port in ports)):
            async with session.get(f"{base}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            found |= {re.split("[ {]", line)[0] for line in lines if not line.startswith("#")}
    return found


async def refused(device: Device, console: Console, platform: Platform) -> None:
    """Somebody is refused: beyond a limit, on plain NATS, and by a service that is away."""
    polls = [device.http("GET", "commands", wait=1) for _ in range(MANY_POLLS)]
    assert 429 in {status for status, _ in await asyncio.gather(*polls)}
    async with device.nats() as client:
        await client.publish(f"thing.{device.sn}.up.report", b"{}", reply="_INBOX.stranger.1")
        await client.flush()
    await console.data("GET", "/dashboard/dashboards")
    old = await platform.kill("management")

    async def answers(status: int) -> bool:
        return (await console.request("GET", "/dashboard/dashboards"))[0] == status

    await until(lambda: answers(503))
    await platform.restarted("management", old)
    await until(lambda: answers(200))


async def test_what_alerts_and_dashboards_ask_for_is_shown(
    platform: Platform, console: Console, device: Device
) -> None:
    """Once somebody was refused, a device has reported, and runs have waited and ended."""
    await refused(device, console, platform)
    missing, end = set(WANTED), asyncio.Event()

    async def none_missing(of: set[str]) -> bool:
        missing.difference_update(await shown(platform))
        return not missing & of

    async with hook(end) as (url, _), telling(console, device, url), device.mqtt() as connection:
        for number in range(FEW_RUNS):
            await connection.report({"temperature": float(number)})
        await until(lambda: none_missing({WAITING}))
        end.set()
        await until(lambda: none_missing(WANTED))
