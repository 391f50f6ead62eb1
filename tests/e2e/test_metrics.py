"""What alerts and dashboards ask for is what a running platform shows at `/metrics`."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import aiohttp
import aiomqtt
import pytest
import yaml

from deploy.local.process import PROJECT_ROOT
from deploy.observability.dashboards import DASHBOARDS
from deploy.platform.services import internal_service_names
from tests.e2e.callers import Console
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.test_traces import hook, telling
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")

PROMTOOL = shutil.which("promtool")
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
    "thingway_backup_disk_used_bytes",  # after a backup into a directory
    "thingway_backup_disk_bytes",
}
WANTED = {
    name for query in _queries() for name in re.findall(r"\b(?:thingway|process)_\w+", query)
} - RARE


SERIES = re.compile(r"(\w+)(?:\{(.*)\})? ")


async def shown(platform: Platform) -> dict[str, str]:
    """Return the name of each series of all services, with its target."""
    ports = [platform.state.ports[name] for name in internal_service_names()]
    found = {}
    async with aiohttp.ClientSession() as session:
        for base in (platform.base_url, *(f"http://127.0.0.1:{port}" for port in ports)):
            async with session.get(f"{base}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            for match in filter(None, map(SERIES.match, lines)):
                labels = [f'instance="{base}"', 'job="thingway"', match[2] or ""]
                found[f"{match[1]}{{{','.join(filter(None, labels))}}}"] = match[1]
    return found


def evaluate(series: Iterable[str], file: Path) -> None:
    """Fail for a panel whose query returns nothing from these series, which all increase."""
    if PROMTOOL is None:
        pytest.skip("promtool is not on PATH: install the package `prometheus`")
    queries = [
        {
            "expr": f"count({query}) > bool 0".replace("$__rate_interval", "5m"),
            "eval_time": "20m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for page in DASHBOARDS
        for panel in page.panels
        for query in panel.lines.values()
    ]
    values = [{"series": name, "values": "0+60x20"} for name in sorted(series)]
    tests = [{"interval": "1m", "input_series": values, "promql_expr_test": queries}]
    file.write_text(json.dumps({"rule_files": [], "tests": tests}))
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


async def refused(device: Device, console: Console, platform: Platform) -> None:
    """Send requests that are rejected: too many, wrong key, on plain NATS, without a service."""
    polls = [device.http("GET", "commands", wait=1) for _ in range(MANY_POLLS)]
    assert 429 in {status for status, _ in await asyncio.gather(*polls)}
    with pytest.raises(aiomqtt.MqttError):
        async with device.mqtt(key="wrong"):
            pass
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


async def test_metrics_of_alerts_and_dashboards_exist(
    platform: Platform, console: Console, device: Device, tmp_path: Path
) -> None:
    """Once a client was rejected, a device has reported, and runs have waited and ended.

    Prometheus then evaluates the query of each panel on the recorded series.
    """
    await refused(device, console, platform)
    recorded: dict[str, str] = {}
    end = asyncio.Event()

    async def none_missing(names: set[str]) -> bool:
        recorded.update(await shown(platform))
        return names <= set(recorded.values())

    async with hook(end) as (url, _), telling(console, device, url), device.mqtt() as connection:
        for number in range(FEW_RUNS):
            await connection.report({"temperature": float(number)})
        await until(lambda: none_missing({WAITING}))
        end.set()
        await until(lambda: none_missing(WANTED))
    evaluate((series for series, name in recorded.items() if name in WANTED), tmp_path / "t.yaml")
