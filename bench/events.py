"""Benchmark of two partitions of events on two `workflow` processes, against one on one.

Each process gets a share of a processor where there are few, as in `bench.partitions`.
"""

import asyncio
import signal
import subprocess
import time
from base64 import urlsafe_b64encode

from bench.partitions import compare, limited_processes, needs_shares
from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from libs.common.bus import Bus, OutgoingMessage, publish_each
from libs.common.bus.streams import read_event_partitions, set_event_partitions
from libs.common.bus.subjects import device_event

EVENTS, DEVICES, ROUNDS = 40_000, 1000, 3
DURABLE = "workflow"
KEY = urlsafe_b64encode(bytes(32)).decode().rstrip("=")
BODY = (
    b'{"eventId":"%d","tenant":"default","ts":1700000000000,"received":1700000000000,"device":'
    b'{"deviceId":"%d","sn":"BENCH%d","model":"bench","name":"Bench"},"properties":'
    b'{"temperature":21.5,"humidity":40}}'
)


async def rate(servers: Stack, partitions: int) -> float:
    """Return the median events per second of one process per partition."""
    bus = await Bus.connect(servers.nats_url, name="bench", stream_replicas=1)
    await set_event_partitions(bus.js, 1, partitions)
    started = [
        servers.start("services.workflow", THINGWAY_SECRETS_KEY=KEY) for _ in range(partitions)
    ]
    children = [child for child, _ in started]
    try:
        for _, port in started:
            await ready(port)
        with limited_processes([child.pid for child in children] if needs_shares() else []):
            rates = [await _round(bus, children) for _ in range(ROUNDS + 1)]
    finally:
        await bus.drain()
        for child in children:
            child.terminate()
            await asyncio.to_thread(child.wait)
    return median_value(rates[1:])


async def _round(bus: Bus, children: list[subprocess.Popen[bytes]]) -> float:
    for child in children:
        child.send_signal(signal.SIGSTOP)
    bus.forget_partitions()
    for first in range(0, EVENTS, 500):
        await publish_each(
            bus,
            [
                OutgoingMessage(
                    device_event("default", number % DEVICES, "reported"),
                    BODY % (number, number % DEVICES, number % DEVICES),
                )
                for number in range(first, first + 500)
            ],
        )
    began = time.perf_counter()
    for child in children:
        child.send_signal(signal.SIGCONT)
    for stream in (await read_event_partitions(bus.js)).streams:
        while True:
            info = await bus.js.consumer_info(stream, DURABLE)
            if not (info.num_pending or info.num_ack_pending):
                break
            await asyncio.sleep(0.05)
    return EVENTS / (time.perf_counter() - began)


async def measure(servers: Stack) -> Row:
    """Compare one partition with two."""
    return compare("workflow: events/s", await rate(servers, 1), await rate(servers, 2))


async def run() -> list[Row]:
    """Start the servers, measure, stop them."""
    async with stack() as servers:
        return [await measure(servers)]
