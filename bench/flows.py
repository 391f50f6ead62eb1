"""Flows: listener → choice → assigner, from an MQTT report to the value that is assigned.

One process each of `device-ingest`, `device` and `workflow` runs the flow; what it assigns is a
custom entity, whose new value is stored and told like any other. Node-RED (`node-red` on PATH)
runs the same flow, in → switch → change → out, fed by the same publisher through the same kind
of broker; it keeps no logs and stores nothing. The cost of an event among many flows is that of
finding those that listen.
"""

import asyncio
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
import paho.mqtt.client as paho
from nats.aio.msg import Msg
from paho.mqtt.enums import CallbackAPIVersion
from pymongo import MongoClient

from bench import ingest, node_red
from bench.stack import Stack, ready, stack
from bench.table import Row, middle
from libs.common.bus import Bus, Outgoing, RpcServer
from libs.common.bus.subjects import device_event
from libs.common.changes import Changed, ChangedThing
from libs.common.contracts.events import DeviceProfile, PropertiesReported
from libs.common.contracts.integrations import GetIntegrations, KnownIntegrations
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Kind, Principal, make_keys
from services.workflow.runs.records import Deployed
from services.workflow.triggers.listeners.index import ListenerIndex
from services.workflow.triggers.listeners.service import starts_of

REPORTS, ROUNDS = 2000, 3
RATE, SECONDS, WARM = 200, 15, 3
"""Runs in a second, how long, and how much of that is not counted."""
FEW, MANY, EVENTS = 10, 10_000, 2000
BAR, CHEAP = 1.0, 1.3
KEY, TARGET = "direct.device.BENCH0.temperature", "benched"
FLOW = 7_000_000
WORKFLOW_DATABASE = "bench_workflow"


def _node(node_id: str, component: str, **parameters: Any) -> dict[str, Any]:
    return {"id": node_id, "componentName": component, "data": {"parameters": parameters}}


def design() -> str:
    """`design_data`."""
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


def _listener(flow_id: int, key: str) -> Deployed:
    return Deployed(
        tenant=ingest.TENANT,
        flow_id=flow_id,
        version=1,
        name="Bench",
        node_id="start",
        component="eventListener",
        parameters={"entities": [key]},
    )


def _prepare(database: Any) -> None:
    """Write the flow, as its service would."""
    now = datetime.now(UTC)
    flow = {"tenant": ingest.TENANT, "name": "Bench", "remark": "", "enabled": True, "version": 1}
    times = {"userId": None, "createdAt": now, "updatedAt": now}
    database.flows.insert_one({"_id": FLOW, "design": design(), **flow, **times})
    deployed = _listener(FLOW, KEY)
    fields = {"tenant": deployed.tenant, "component": deployed.component}
    fields["deployed"] = msgspec.json.encode(deployed)  # type: ignore[assignment]
    database.deployments.insert_one({"_id": FLOW, **fields})


async def _target(port: int, private_key: str) -> None:
    """Make the custom entity that is assigned."""
    user = Principal(
        kind=Kind.USER, tenant=ingest.TENANT, subject="1", name="bench", super_admin=True
    )
    body = {"identifier": TARGET, "name": "Bench", "type": "PROPERTY", "access_mod": "RW"}
    headers = {PRINCIPAL_HEADER: HeaderSigner(private_key).sign(user)}
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http,
        http.post("/entity", json={**body, "value_type": "DOUBLE"}) as answer,
    ):
        answer.raise_for_status()


def _management(bus: Bus) -> RpcServer:
    """Stands for `management`, which tells `device` of integrations every two seconds."""

    async def none(_: GetIntegrations) -> KnownIntegrations:
        return KnownIntegrations([])

    rpc = RpcServer(bus, "management")
    rpc.offer("get_integrations", GetIntegrations, none)
    return rpc


def _publish(port: int, topic: str, first: int, count: int) -> None:
    """Report `count` values over MQTT, as fast as they are taken."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(500)
    client.max_queued_messages_set(0)
    client.connect("127.0.0.1", port)
    client.loop_start()
    sent = [
        client.publish(topic, json.dumps({"properties": {"temperature": 1 + number % 80}}), qos=1)
        for number in range(first, first + count)
    ]
    for one in sent:
        one.wait_for_publish()
    client.disconnect()
    client.loop_stop()


async def _rate(port: int, topic: str, number: int, done: Callable[[], int]) -> float:
    """Messages per second from the first publish to the last that is `done`."""
    before = await asyncio.to_thread(done)
    arguments = (port, topic, number * REPORTS, REPORTS)
    publisher = multiprocessing.get_context("spawn").Process(
        target=_publish, args=arguments, daemon=True
    )
    started = time.perf_counter()
    publisher.start()
    async with asyncio.timeout(300):
        while await asyncio.to_thread(done) < before + REPORTS:
            await asyncio.sleep(0.02)
    seconds = time.perf_counter() - started
    await asyncio.to_thread(publisher.join)
    return REPORTS / seconds


async def _latencies(bus: Bus) -> list[float]:
    """Milliseconds from an event to the assigned value that is stored and told."""
    published: dict[float, float] = {}
    found: list[float] = []

    async def hear(message: Msg) -> None:
        value = msgspec.json.decode(message.data)["properties"].get(TARGET)
        if value in published:
            found.append((time.perf_counter() - published.pop(value)) * 1000)

    heard = await bus.client.subscribe(f"event.{ingest.TENANT}.thing.*.reported", cb=hear)
    begin = time.perf_counter()
    for number in range(RATE * SECONDS):
        await asyncio.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
        if number == RATE * WARM:
            found.clear()
        value = number + 0.5
        event = PropertiesReported(
            event_id=f"bench-{number}",
            created_at=int(time.time() * 1000),
            tenant=ingest.TENANT,
            device=DeviceProfile(
                device_id=ingest.FIRST_ID, sn="BENCH0", thing_key="direct.device.BENCH0"
            ),
            ts=int(time.time() * 1000),
            properties={"temperature": value},
        )
        published[value] = time.perf_counter()
        subject = device_event(ingest.TENANT, ingest.FIRST_ID, "reported")
        await bus.publish([Outgoing(subject, msgspec.json.encode(event))])
    async with asyncio.timeout(60):
        while published:
            await asyncio.sleep(0.05)
    await heard.unsubscribe()
    return sorted(found)


async def _ours(servers: Stack) -> tuple[list[float], list[float]]:
    """Rates of rounds over MQTT, and latencies."""
    private, public = make_keys()
    keys = {"THINGWAY_INTERNAL_PUBLIC_KEY": public}
    own = {**keys, "THINGWAY_MONGO_DATABASE": WORKFLOW_DATABASE}
    _, stores = servers.start("services.device.ingest_main", **keys)
    await ready(stores)
    _, device = servers.start("services.device", **keys)
    _, workflow = servers.start("services.workflow", **own)
    for port in (device, workflow):
        await ready(port)
    client: MongoClient[dict[str, Any]] = MongoClient(servers.mongo_url)
    ingest.prepare(client.get_database("bench"))
    await _target(device, private)
    flows = client.get_database(WORKFLOW_DATABASE)
    _prepare(flows)
    bus = await Bus.connect(servers.nats_url, name="bench")
    await _management(bus).start()
    await asyncio.sleep(1)  # the service follows its change stream

    def ended() -> int:
        return flows.runs.count_documents({"flow": FLOW, "status": {"$ne": "RUNNING"}})

    topic = "thing/BENCH0/up/report"
    rates = [await _rate(servers.mqtt_port, topic, number, ended) for number in range(ROUNDS + 1)]
    failed = flows.runs.find_one({"status": "ERROR"})
    if failed is not None:
        raise RuntimeError(f"a run failed: {failed['error']}")
    latencies = await _latencies(bus)
    await bus.drain()
    client.close()
    return rates[1:], latencies


def _cost(flows: int) -> float:
    """Microseconds in which an event finds the one flow that listens, among so many."""
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
            change = Changed(str(number), ingest.TENANT, thing, 0, values)
            if len(list(starts_of(index, change, 0))) != 1:
                raise RuntimeError("the event did not find its flow")
        rounds.append((time.perf_counter() - started) / EVENTS * 1e6)
    return middle(rounds)


async def run() -> list[Row]:
    """Measure all."""
    async with stack() as servers:
        ours, latencies = await _ours(servers)
    program = shutil.which("node-red")
    theirs: list[float] = []
    if program is not None:
        async with stack() as servers:
            theirs = await node_red.rates(servers, program, _rate, ROUNDS)
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    ratio = middle(ours) / middle(theirs) if theirs else None
    few, many = _cost(FEW), _cost(MANY)
    return [
        Row(
            "MQTT report → listener → choice → assigner, runs/s of one process, full logs",
            f"{middle(ours):,.0f}",
            f"{middle(theirs):,.0f} Node-RED, no logs" if theirs else "no node-red on PATH",
            ratio,
            f">= {BAR:.1f}",
            None if ratio is None else ratio >= BAR,
        ),
        Row(
            f"event to assigned value, stored and told, {RATE} runs/s, ms",
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
