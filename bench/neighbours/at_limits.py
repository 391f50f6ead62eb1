"""Benchmark of a tenant next to another that exceeds all its limits tenfold.

The whole platform runs as with `thingway up`. One tenant reports over HTTP until the report is
stored, reads a history page, receives values over a WebSocket, and calls a webhook until the run
has ended. It does so alternately alone, and while the other tenant
(`bench.hostile`, a separate process) attacks. The other tenant has low limits, so that ten times of
them fit on a small machine. The medians of the rounds count.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import aiomqtt
import msgspec
import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from websockets.asyncio.client import connect

from bench.hostile import Attack
from bench.platform import Platform
from bench.stack import ROOT
from bench.table import Row, median_value
from bench.tenants import Tenant, command, create_tenant, data
from libs.common.clock import now_ms

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
WARM, MEASURED, REST = 4.0, 8.0, 8.0
"""Seconds of a round: warm-up until bursts are used up, measurement, and pause until the other
tenant's last runs have ended."""
BAR = 2.0
TIMES = 10
LIMITS = {
    "eachMessages": 5,
    "messages": 15,
    "eachRequests": 2,
    "requests": 5,
    "eachPolls": 2,
    "polls": 10,
    "eachWebsockets": 2,
    "websockets": 5,
    "eachConnections": 2,
    "eachRuns": 2,
    "runs": 2,
    "eachWaitingRuns": 5,
    "waitingRuns": 5,
}
SETTINGS = {
    "THINGWAY_PRINCIPAL_RATE": "10",
    "THINGWAY_PRINCIPAL_BURST": "100",
    "THINGWAY_TOKEN_RATE": "1",
    "THINGWAY_TOKEN_BURST": "10",
}
"""Rates of all tenants, lowered like the limits."""
QUESTIONS = 200
"""Pull requests per second that the relay accepts from an application."""
SIGN_INS = 1
DEVICES = 2
"""Devices of the other tenant per protocol."""
PAGE = 100
EVERY = 0.1
"""Seconds between two actions of a kind."""
SPIN = {"language": "js", "expression": "for (;;) {}"}

Times = dict[str, list[float]]


class Neighbour:
    """The tenant that is measured."""

    def __init__(self, platform: Platform, tenant: Tenant, http: aiohttp.ClientSession) -> None:
        self._platform = platform
        self._tenant = tenant
        self._http = http
        self._ended: dict[int, asyncio.Future[float]] = {}
        self.times: Times = defaultdict(list)
        self._listening: asyncio.Task[None] | None = None
        (self._device_id, device), (_, self.live) = tenant.devices
        self._login = {"Authorization": aiohttp.encode_basic_auth(device.name, device.key)}
        self._report = f"/ingest/v1/{device.name}/report?wait=stored"

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Fill a history page, and subscribe."""
        now = now_ms()
        page = [{"ts": now - number, "properties": {"at": 1.0}} for number in range(2 * PAGE)]
        async with self._http.post(self._report, json=page, headers=self._login) as answer:
            await data(answer)
        login, tenant = self._tenant.application, self._tenant
        bus = await nats.connect(
            self._platform.nats_url,
            user=login.name,
            password=login.key,
            inbox_prefix=f"_INBOX.app.{login.name}".encode(),
        )
        subject = f"event.{tenant.name}.workflow.{tenant.flow}.finished"
        await bus.subscribe(subject, cb=self._finished)
        self._listening = listening = asyncio.create_task(self._listen())
        try:
            yield
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            await bus.close()

    async def measure(self, seconds: float) -> Times:
        """Return the durations in ms by action."""
        self.times = defaultdict(list)
        end = time.monotonic() + seconds
        await asyncio.gather(
            _repeat("report, wait=stored", self._stored, end, self.times),
            _repeat("GET a page of history", self._page, end, self.times),
            _repeat("hook to run", self._run, end, self.times),
            self._report_time(end),
        )
        await asyncio.sleep(0.3)  # wait for pending messages
        if self._listening is None or self._listening.done():
            raise RuntimeError("the WebSocket has ended")
        return self.times

    async def _stored(self, _: int) -> None:
        body = {"properties": {"at": time.time()}}
        async with self._http.post(self._report, json=body, headers=self._login) as answer:
            await data(answer)

    async def _page(self, _: int) -> None:
        path = f"/device/openapi/v1/devices/{self._device_id}/properties/history"
        headers = {"Authorization": f"Bearer {self._tenant.app_token}"}
        query = f"?pageSize={PAGE}&startTime=0"
        async with self._http.get(path + query, headers=headers) as answer:
            if len((await data(answer))["list"]) != PAGE:
                raise RuntimeError("the page is not full")

    async def _run(self, number: int) -> None:
        path = f"/workflow/hooks/{self._tenant.hook}"
        async with self._http.post(path, json={"number": number}) as answer:
            run = int((await data(answer))["run_id"])
        async with asyncio.timeout(30):
            await self._end_of(run)
        del self._ended[run]

    def _end_of(self, run: int) -> asyncio.Future[float]:
        return self._ended.setdefault(run, asyncio.get_running_loop().create_future())

    async def _finished(self, message: Msg) -> None:
        event = json.loads(message.data)
        if event["status"] != "SUCCESS":
            raise RuntimeError(f"a run failed: {event}")
        self._end_of(int(event["runId"])).set_result(time.perf_counter())

    async def _report_time(self, end: float) -> None:
        """Report the current time over MQTT."""
        login = self.live
        port = self._platform.mqtt_port
        async with aiomqtt.Client(
            "127.0.0.1", port, username=login.name, password=login.key
        ) as client:
            while time.monotonic() < end:
                body = json.dumps({"properties": {"at": time.time()}})
                await client.publish(f"thing/{login.name}/up/report", body, qos=1)
                await asyncio.sleep(EVERY)

    async def _listen(self) -> None:
        url = self._platform.ready["base_url"].replace("http", "ws", 1) + "/websocket"
        header = {"Authorization": f"Bearer {self._tenant.token}"}
        key = f"direct.device.{self.live.name}.at"
        async with connect(url, additional_headers=header, compression=None) as socket:
            wanted = {"event_type": "Exchange", "payload": {"entity_key": [key]}}
            await socket.send(json.dumps(wanted))
            async for frame in socket:
                sent = json.loads(frame)["payload"]["values"][key]["value"]
                self.times["MQTT to WebSocket"].append((time.time() - sent) * 1000)


async def _repeat(
    name: str, action: Callable[[int], Awaitable[None]], end: float, times: Times
) -> None:
    number = 0
    while time.monotonic() < end:
        began = time.perf_counter()
        await action(number)
        took = time.perf_counter() - began
        times[name].append(took * 1000)
        number += 1
        await asyncio.sleep(max(EVERY / 4, EVERY - took))


class Hostile:
    """The process of the other tenant."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.counts: list[dict[str, int]] = []

    def start(self) -> None:
        """Start the attack."""
        self._send("start")

    async def stop(self) -> None:
        """Stop the attack, and save the counts."""
        self._send("stop")
        assert self._process.stdout is not None
        self.counts.append(json.loads(await self._process.stdout.readline()))

    def _send(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())


@asynccontextmanager
async def _hostile(attack: Attack) -> AsyncIterator[Hostile]:
    """Run the attacker with idle priority, like a process on another machine."""
    process = await asyncio.create_subprocess_exec(
        *("chrt", "--idle", "0", sys.executable, "-m", "bench.hostile"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(attack) + b"\n")
    try:
        yield Hostile(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _attack(platform: Platform, tenant: Tenant) -> Attack:
    """Return ten times all limits; create the application's consumer."""
    login = tenant.application
    inbox = f"_INBOX.app.{login.name}".encode()
    bus = await nats.connect(
        platform.nats_url, user=login.name, password=login.key, inbox_prefix=inbox
    )
    config = ConsumerConfig(ack_wait=30)
    await bus.jetstream().pull_subscribe(
        f"event.{tenant.name}.>", durable=login.name, stream="EVENTS", config=config
    )
    await bus.close()
    logins = [device for _, device in tenant.devices]
    return Attack(
        http_port=platform.port,
        mqtt_port=platform.mqtt_port,
        nats_port=int(platform.nats_url.rpartition(":")[2]),
        device_id=tenant.devices[0][0],
        mqtt=logins[:DEVICES],
        nats=logins[DEVICES : 2 * DEVICES],
        http=logins[2 * DEVICES :],
        application=login,
        token=tenant.app_token,
        person=tenant.token,
        sign_in=tenant.sign_in,
        hook=tenant.hook,
        reports=TIMES * LIMITS["eachMessages"],
        requests=TIMES * int(SETTINGS["THINGWAY_PRINCIPAL_RATE"]),
        requests_at_once=TIMES * LIMITS["eachRequests"],
        polls=TIMES * LIMITS["polls"] // DEVICES,
        websockets=TIMES * LIMITS["websockets"],
        connections=TIMES * LIMITS["eachConnections"],
        questions=TIMES * QUESTIONS,
        hooks=TIMES * LIMITS["waitingRuns"],
        sign_ins=TIMES * SIGN_INS,
    )


async def _rounds(neighbour: Neighbour, hostile: Hostile) -> tuple[list[Times], list[Times]]:
    """Measure alternately alone and next to the attacker."""
    await neighbour.measure(WARM)
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(await neighbour.measure(MEASURED))
        hostile.start()
        await neighbour.measure(WARM)
        beside.append(await neighbour.measure(MEASURED))
        await hostile.stop()
        await asyncio.sleep(REST)
    return alone, beside


def _at(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


def _rows(alone: list[Times], beside: list[Times]) -> list[Row]:
    rows = []
    for name in alone[0]:
        quiet, loud = (
            [measured[name] for measured in alone],
            [measured[name] for measured in beside],
        )
        before, after = ([_at(times, 0.95) for times in some] for some in (quiet, loud))
        ratio = median_value(after) / median_value(before)
        shown = [
            f"p50 {median_value([_at(ms, 0.5) for ms in some]):.1f}, p95 {median_value(p95):.1f}"
            for some, p95 in ((loud, after), (quiet, before))
        ]
        rows.append(
            Row(
                f"{name}, beside one at {TIMES} times its limits, ms",
                shown[0],
                f"{shown[1]} alone",
                ratio,
                f"<= {BAR}",
                ratio <= BAR,
            )
        )
    return rows


def _done(hostile: Hostile) -> Row:
    """Return the actions of the attacker per second."""
    seconds = (WARM + MEASURED) * len(hostile.counts)
    names = sorted({name for count in hostile.counts for name in count})
    rates = {name: sum(count.get(name, 0) for count in hostile.counts) / seconds for name in names}
    shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return Row(f"what the other one did, per second; load of the machine {load}", shown)


async def run() -> list[Row]:
    """Run the benchmark."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    platform = Platform(directory, **SETTINGS)
    try:
        platform.wait()
        async with AsyncExitStack() as stack:
            quiet = await create_tenant(platform, stack, "quiet", 2)
            spin = {"id": "spin", "componentName": "code", "data": {"parameters": {}}}
            spin["data"] = {"parameters": {"expression": SPIN}}
            loud = await create_tenant(platform, stack, "loud", 3 * DEVICES, spin)
            limits = [f"{name}={number}" for name, number in LIMITS.items()]
            command(platform, "tenant", "limits", loud.name, *limits)
            http = await stack.enter_async_context(
                aiohttp.ClientSession(platform.ready["base_url"])
            )
            neighbour = Neighbour(platform, quiet, http)
            await stack.enter_async_context(neighbour.ready())
            attack = await _attack(platform, loud)
            hostile = await stack.enter_async_context(_hostile(attack))
            alone, beside = await _rounds(neighbour, hostile)
        return [*_rows(alone, beside), _done(hostile)]
    finally:
        platform.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
