"""Benchmark of a flow (listener → choice → assigner), fed by MQTT reports.

One process each of `device-ingest`, `device` and `workflow` runs the flow. It assigns a custom
entity, whose new value is stored and published; a run counts when its log is stored and published.
Node-RED (`node-red` and `npm` on PATH) runs the same flow and writes the same data to its own
MongoDB (`bench.node_red`), with the same publisher and broker. Rounds of both alternate. The
comparison uses runs per second of processor time over all processes, including stores and broker,
because the two distribute their work differently.

Latencies are measured at a constant rate that does not wait for results. The cost of an event among
many flows is the time to find the flows that listen.
"""

import asyncio
import json
import multiprocessing
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import paho.mqtt.client as paho
from nats.aio.msg import Msg
from paho.mqtt.enums import CallbackAPIVersion
from pymongo import MongoClient

from bench import ingest, node_red
from bench.stack import Stack, processor_seconds, ready, stack
from bench.table import Row, median_value
from libs.common.bus import Bus, RpcServer
from libs.common.bus.subjects import wakeup_subject
from libs.common.bus.wakeups import ChangeCounts
from libs.common.changes import ChangedThing, EntityChange
from libs.common.contracts.integrations import GetIntegrations, KnownIntegrations
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
    generate_keys,
)
from services.workflow.runs.model import DeployedFlow
from services.workflow.triggers.deployed_flows import FLOWS_TOPIC
from services.workflow.triggers.listener_index import ListenerIndex, build_event_starts

REPORTS, ROUNDS = 3000, 5
"""Reports of a round; one device may not send more in a row."""
RATE, SECONDS, WARM = 200, 15, 3
"""Runs per second, seconds of measurement, and seconds of warm-up in it."""
STEP = 1 / 1024
"""Difference of the traced values, exact in every number type."""
FEW, MANY, EVENTS = 10, 10_000, 2000
BAR, CHEAP = 1.0, 1.3
COST = 400
"""Target of processor time per run over all processes, in µs."""
KEY, TARGET = "direct.device.BENCH0.temperature", "benched"
REPORT_TOPIC = "thing/BENCH0/up/report"
FLOW = 7_000_000
WORKFLOW_DATABASE = "bench_workflow"


def _node(node_id: str, component: str, **parameters: Any) -> dict[str, Any]:
    return {"id": node_id, "componentName": component, "data": {"parameters": parameters}}


def design() -> str:
    """Return the `design_data` of the flow."""
    value = f"#{{properties.start['{KEY}']}}"
    above = {"key": value, "operator": "GT", "value": "0"}
    when = {"id": "above", "expressionType": "condition"}
    when["conditions"] = [{"expressionValue": above}]  # type: ignore[assignment]
    nodes = [
        _node("start", "eventListener", entities=[KEY]),
        _node("fork", "choice", choice={"when": [when], "otherwise": {"id": "else"}}),
        _node("set", "entityAssigner", exchangePayload={f"system.integration.{TARGET}": value}),
    ]
    edges = [
        {"source": "start", "target": "fork"},
        {"source": "fork", "target": "set", "sourceHandle": "above"},
    ]
    return json.dumps({"nodes": nodes, "edges": edges})


def _listener(flow_id: int, key: str) -> DeployedFlow:
    return DeployedFlow(
        tenant=ingest.TENANT,
        flow_id=flow_id,
        version=1,
        name="Bench",
        node_id="start",
        component="eventListener",
        parameters={"entities": [key]},
    )


def _prepare(database: Any) -> None:
    """Write the deployed flow like its service."""
    now = datetime.now(UTC)
    flow = {"tenant": ingest.TENANT, "name": "Bench", "remark": "", "enabled": True, "version": 1}
    times = {"userId": None, "createdAt": now, "updatedAt": now}
    database.flows.insert_one({"_id": FLOW, "design": design(), **flow, **times})
    deployed = _listener(FLOW, KEY)
    fields = {"tenant": deployed.tenant, "component": deployed.component}
    fields["deployed"] = msgspec.json.encode(deployed)  # type: ignore[assignment]
    database.deployments.insert_one({"_id": FLOW, **fields})
    database.deployment_changes.insert_one({"flow": FLOW, "at": now})


async def _target(port: int, private_key: str) -> None:
    """Create the custom entity that the flow assigns."""
    user = Principal(
        kind=PrincipalKind.USER, tenant=ingest.TENANT, subject="1", name="bench", super_admin=True
    )
    body = {"identifier": TARGET, "name": "Bench", "type": "PROPERTY", "access_mod": "RW"}
    headers = {PRINCIPAL_HEADER: HeaderSigner(private_key).sign(user)}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http,
        http.post("/entity", json={**body, "value_type": "DOUBLE"}) as answer,
    ):
        answer.raise_for_status()


def _management(bus: Bus) -> RpcServer:
    """Return a fake of `management`, which `device` asks for integrations."""

    async def none(_: GetIntegrations) -> KnownIntegrations:
        return KnownIntegrations([])

    rpc = RpcServer(bus, "management")
    rpc.offer("get_integrations", GetIntegrations, none)
    return rpc


def _publish(port: int, topic: str, values: list[float], rate: float, results: Any) -> None:
    """Report values over MQTT at `rate` per second; with rate 0 as fast as possible.

    Puts the start time into `results`, and then the time of each publish (Unix seconds).
    """
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(500)
    client.max_queued_messages_set(0)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    connected.wait()
    begin = time.time()
    results.put(begin)
    sent, times = [], []
    for number, value in enumerate(values):
        if rate:
            time.sleep(max(0.0, begin + number / rate - time.time()))
        times.append(time.time())
        sent.append(client.publish(topic, json.dumps({"properties": {"temperature": value}}), 1))
    for message in sent:
        message.wait_for_publish()
    results.put(times)
    client.disconnect()
    client.loop_stop()


@asynccontextmanager
async def _publishing(
    port: int, topic: str, values: list[float], rate: float
) -> AsyncIterator[Any]:
    """Run a process that reports; yield its queue of results."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    arguments = (port, topic, values, rate, results)
    publisher = context.Process(target=_publish, args=arguments, daemon=True)
    publisher.start()
    try:
        yield results
    finally:
        await asyncio.to_thread(publisher.join)


async def _rate(port: int, topic: str, done: Callable[[], int]) -> float:
    """Return the messages per second from the first publish to the last completion."""
    before = done()
    values = [1.0 + number % 80 for number in range(REPORTS)]
    async with _publishing(port, topic, values, 0) as results:
        begin: float = await asyncio.to_thread(results.get)
        async with asyncio.timeout(300):
            while done() < before + REPORTS:
                await asyncio.sleep(0.005)
        seconds = time.time() - begin
        await asyncio.to_thread(results.get)
    return REPORTS / seconds


@dataclass
class _Ours:
    """The services with the flow, on their own servers."""

    servers: Stack
    bus: Bus
    pids: dict[str, int]
    ended: int = 0

    async def rate(self) -> float:
        """Return the runs per second of one round."""
        return await _rate(self.servers.mqtt_port, REPORT_TOPIC, lambda: self.ended)

    async def count(self, _: Msg) -> None:
        """Count a completed run."""
        self.ended += 1

    async def latencies(self) -> list[float]:
        """Return ms from MQTT reports to the events of the assigned values, sorted."""
        received: dict[float, float] = {}

        async def receive(message: Msg) -> None:
            value = msgspec.json.decode(message.data)["properties"].get(TARGET)
            received.setdefault(value, time.time())

        events = f"event.{ingest.TENANT}.thing.*.reported"
        subscription = await self.bus.client.subscribe(events, cb=receive)
        values = [1 + number * STEP for number in range(RATE * SECONDS)]
        port = self.servers.mqtt_port
        async with _publishing(port, REPORT_TOPIC, values, RATE) as results:
            await asyncio.to_thread(results.get)
            times = await asyncio.to_thread(results.get)
        async with asyncio.timeout(60):
            while len(received) < len(values):
                await asyncio.sleep(0.05)
        await subscription.unsubscribe()
        counted = list(zip(values, times, strict=True))[RATE * WARM :]
        return sorted((received[value] - sent) * 1000 for value, sent in counted)


async def _round(
    pids: Mapping[str, int], measure: Callable[[], Awaitable[float]]
) -> tuple[float, dict[str, float]]:
    """Return the runs per second of a round, and processor seconds by process."""
    before = {name: processor_seconds(pid) for name, pid in pids.items()}
    rate = await measure()
    return rate, {name: processor_seconds(pid) - before[name] for name, pid in pids.items()}


@asynccontextmanager
async def _ours() -> AsyncIterator[_Ours]:
    """Start the services and deploy the flow."""
    async with stack() as servers:
        private, public = generate_keys()
        keys = {"THINGWAY_INTERNAL_PUBLIC_KEY": public, "THINGWAY_SECRETS_KEY": public}
        stores, store_port = servers.start("services.device.ingest_main", **keys)
        await ready(store_port)
        device, device_port = servers.start("services.device", **keys)
        own = {**keys, "THINGWAY_MONGO_DATABASE": WORKFLOW_DATABASE}
        workflow, workflow_port = servers.start("services.workflow", **own)
        for port in (device_port, workflow_port):
            await ready(port)
        client: MongoClient[dict[str, Any]] = MongoClient(servers.mongo_url)
        ingest.prepare(client.get_database("bench"))
        await _target(device_port, private)
        flows = client.get_database(WORKFLOW_DATABASE)
        _prepare(flows)
        bus = await Bus.connect(servers.nats_url, name="bench")
        await _management(bus).start()
        mongo, nats = servers.children[:2]
        processes = {"workflow": workflow, "device": device, "device-ingest": stores}
        processes |= {"mongod": mongo, "nats": nats}
        found = _Ours(servers, bus, {name: process.pid for name, process in processes.items()})
        await bus.client.subscribe(f"event.*.workflow.{FLOW}.finished", cb=found.count)
        changes = ChangeCounts("bench", {FLOWS_TOPIC: 1})
        await bus.publish_core(wakeup_subject("workflow"), msgspec.json.encode(changes))
        await asyncio.sleep(1)  # wait until the service has read the deployed flow
        yield found
        failed = flows.runs.find_one({"status": "ERROR"})
        if failed is not None:
            raise RuntimeError(f"a run failed: {failed['error']}")
        await bus.drain()
        client.close()


@dataclass
class _Theirs:
    """Node-RED with the flow, on its own servers."""

    port: int
    pids: dict[str, int]
    arrived: Callable[[], int]

    async def rate(self) -> float:
        """Return the runs per second of one round."""
        return await _rate(self.port, node_red.TOPIC, self.arrived)


@asynccontextmanager
async def _theirs() -> AsyncIterator[_Theirs | None]:
    """Start Node-RED; yield None if it is not installed."""
    found = node_red.programs()
    if found is None:
        yield None
        return
    async with stack() as servers, node_red.running(servers, *found) as (pid, arrived):
        mongo, nats = servers.children[:2]
        pids = {"node-red": pid, "mongod": mongo.pid, "nats": nats.pid}
        yield _Theirs(servers.mqtt_port, pids, arrived)


@dataclass
class _Side:
    """The measured rounds of one side."""

    rates: list[float]
    costs: list[dict[str, float]]
    """Processor seconds by process, for each round."""

    @property
    def per_cpu(self) -> list[float]:
        """Return the runs per second of processor time of each round."""
        return [REPORTS / sum(cost.values()) for cost in self.costs]

    def summary(self) -> str:
        """Return microseconds per run: the sum and each process."""
        each = {
            name: median_value([cost[name] for cost in self.costs]) / REPORTS * 1e6
            for name in self.costs[0]
        }
        parts = ", ".join(f"{name} {cost:.0f}" for name, cost in each.items())
        return f"{sum(each.values()):.0f}: {parts}"


async def _measure() -> tuple[_Side, _Side | None, list[float]]:
    """Run all rounds of both, discard the first, and measure our latencies."""
    async with _theirs() as other, _ours() as own:
        rounds: list[list[tuple[float, dict[str, float]]]] = [[], []]
        for _ in range(ROUNDS + 1):
            for side, taken in zip((own, other), rounds, strict=True):
                if side is not None:
                    taken.append(await _round(side.pids, side.rate))
        latencies = await own.latencies()
    ours, theirs = (
        _Side([rate for rate, _ in taken[1:]], [cost for _, cost in taken[1:]]) for taken in rounds
    )
    return ours, theirs if theirs.rates else None, latencies


def _cost(flows: int) -> float:
    """Return the µs in which an event finds the listening flow among `flows`."""
    index = ListenerIndex()
    for number in range(1, flows):
        key = f"direct.device.SN{number:06}."
        index.put(_listener(number, key), [f"{key}temperature" if number % 2 else f"{key}*"])
    index.put(_listener(FLOW, KEY), [KEY])
    thing = ChangedThing(ingest.FIRST_ID, "direct.device.BENCH0", "direct", device=True)
    values = {f"{thing.key}.{name}": value for name, value in ingest.properties(1).items()}
    rounds = []
    for _ in range(9):
        started = time.perf_counter()
        for number in range(EVENTS):
            change = EntityChange(str(number), ingest.TENANT, thing, 0, values)
            if len(list(build_event_starts(index, change, 0))) != 1:
                raise RuntimeError("the event did not find its flow")
        rounds.append((time.perf_counter() - started) / EVENTS * 1e6)
    return median_value(rounds)


async def run() -> list[Row]:
    """Run the benchmark."""
    ours, theirs, latencies = await _measure()
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    few, many = _cost(FEW), _cost(MANY)
    ratio = None
    if theirs is not None:
        pairs = zip(ours.per_cpu, theirs.per_cpu, strict=True)
        ratio = median_value([ours_rate / other for ours_rate, other in pairs])
    cost = median_value([1e6 / rate for rate in ours.per_cpu])
    return [
        Row(
            "MQTT report → listener → choice → assigner, runs per second of processor time",
            f"{median_value(ours.per_cpu):,.0f}",
            f"{median_value(theirs.per_cpu):,.0f} Node-RED"
            if theirs
            else "no node-red or npm on PATH",
            ratio,
            f">= {BAR:.1f}",
            None if ratio is None else ratio >= BAR,
        ),
        Row(
            "such runs per second",
            f"{median_value(ours.rates):,.0f}",
            f"{median_value(theirs.rates):,.0f} Node-RED" if theirs else "",
        ),
        Row(
            "processor time of a run, µs",
            ours.summary(),
            theirs.summary() if theirs else "",
            None,
            f"<= {COST}",
            cost <= COST,
        ),
        Row(
            f"MQTT report to assigned value, stored and told, {RATE} runs/s, ms",
            f"p50 {p50:.1f}, p99 {p99:.1f}",
        ),
        Row(
            f"finding the flow of an event among {MANY:,}, µs",
            f"{many:.1f}",
            f"{few:.1f} among {FEW}",
            many / few,
            f"<= {CHEAP}",
            many / few <= CHEAP,
        ),
    ]
