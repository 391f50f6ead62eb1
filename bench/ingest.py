"""Benchmark of ingest, against bare `insert_many` of the same history documents.

One `device-ingest` process takes reports of 2,000 devices from `UPLINK`, stores them and the latest
values, publishes an event per report, and acknowledges them. Rounds alternate with the bare
insertion into a separate clustered collection; the median of the ratios counts.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import MongoClient, WriteConcern

from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from libs.common.bus import EVENTS, UPLINK, Bus, OutgoingMessage
from libs.common.clock import now_ms
from libs.common.tsl import parse_document, to_wire
from services.device.telemetry.partitions import history_key

DEVICES, REPORTS, ROUNDS, FIRST_ID = 2000, 40_000, 5, 5_000_000
TENANT, MODEL, VERSION = "default", "BENCH", "v1.0"
BAR = 0.10
TSL: dict[str, Any] = {
    "version": VERSION,
    "properties": [
        {"id": name, "name": name, "accessMode": "R", "dataSpec": spec}
        for name, spec in {
            "temperature": {"dataType": "FLOAT", "validator": {"min": -40, "max": 85}},
            "humidity": {"dataType": "FLOAT", "validator": {"min": 0, "max": 100}},
            "battery": {"dataType": "INT", "validator": {"min": 0, "max": 100}},
            "door": {"dataType": "BOOL"},
            "mode": {"dataType": "ENUM", "mapping": {"0": "off", "1": "on"}},
            "label": {"dataType": "STRING", "validator": {"maxSize": 32}},
        }.items()
    ],
}


def properties(number: int) -> dict[str, Any]:
    """Return the values of report `number`."""
    return {
        "temperature": 20 + number % 100 / 10,
        "humidity": 40.0 + number % 50,
        "battery": 99,
        "door": number % 2 == 0,
        "mode": str(number % 2),
        "label": "bench",
    }


def prepare(database: Any) -> None:
    """Write the product and its devices."""
    document = msgspec.json.encode(to_wire(parse_document(TSL)))
    identity = {"tenant": TENANT, "model": MODEL, "version": VERSION}
    database.tsls.insert_one({"_id": identity, "document": document, "hash": "bench"})
    database.devices.insert_many(
        {
            "_id": FIRST_ID + number,
            "tenant": TENANT,
            "sn": f"BENCH{number}",
            "snKey": f"BENCH{number}",
            "name": f"Bench {number}",
            "model": MODEL,
            "tslVersion": VERSION,
            "application": {"applicationId": 1, "applicationName": "b"},
            "connectStatus": "DISCONNECT",
            "dataStorage": True,
            "createdAt": datetime.now(UTC),
        }
        for number in range(DEVICES)
    )


def encoded(ts: int) -> Iterator[bytes]:
    """Yield the reports of a round, alternating between the devices."""
    encoder = msgspec.json.Encoder()
    for number in range(REPORTS):
        yield encoder.encode({"ts": ts + number // DEVICES, "properties": properties(number)})


async def fill(bus: Bus, ts: int) -> None:
    """Publish the reports of a round to `UPLINK`."""
    await bus.publish(
        [
            OutgoingMessage(f"thing.BENCH{number % DEVICES}.up.report", body)
            for number, body in enumerate(encoded(ts))
        ]
    )


async def drained(bus: Bus) -> None:
    """Wait until `UPLINK` is empty."""
    while (await bus.js.stream_info(UPLINK)).state.messages:
        await asyncio.sleep(0.01)


def insert_bare(database: Any, round_number: int, ts: int) -> float:
    """Insert the same documents with the driver alone; return documents per second."""
    name = f"bare_{round_number}"
    database.create_collection(name, clusteredIndex={"key": {"_id": 1}, "unique": True})
    documents = [
        {
            "_id": history_key(FIRST_ID + number % DEVICES, ts + number // DEVICES, number),
            "p": properties(number),
        }
        for number in range(REPORTS)
    ]
    started = time.perf_counter()
    for first in range(0, REPORTS, 2000):
        database[name].insert_many(documents[first : first + 2000], ordered=False)
    return REPORTS / (time.perf_counter() - started)


async def measure(servers: Stack) -> Row:
    """Run the rounds."""
    client: MongoClient[dict[str, Any]] = MongoClient(servers.mongo_url)
    database = client.get_database("bench", write_concern=WriteConcern("majority", j=True))
    child, port = servers.start("services.device.ingest_main")
    await ready(port)
    prepare(database)
    bus = await Bus.connect(servers.nats_url, name="bench")
    ours, bare = [], []
    for number in range(ROUNDS + 1):
        ts = now_ms()
        events = (await bus.js.stream_info(EVENTS)).state.messages
        child.send_signal(signal.SIGSTOP)
        await fill(bus, ts)
        started = time.perf_counter()
        child.send_signal(signal.SIGCONT)
        await drained(bus)
        rate = REPORTS / (time.perf_counter() - started)
        published = (await bus.js.stream_info(EVENTS)).state.messages - events
        if published != REPORTS:
            raise RuntimeError(f"{published} events for {REPORTS} reports")
        plain = await asyncio.to_thread(insert_bare, database, number, ts)
        if number:
            ours.append(rate)
            bare.append(plain)
    await bus.drain()
    client.close()
    ratio = median_value([our / their for our, their in zip(ours, bare, strict=True)])
    return Row(
        "ingest: reports/s, one process",
        f"{median_value(ours):,.0f}",
        f"{median_value(bare):,.0f} insert_many",
        ratio,
        f">= {BAR:.2f}",
        ratio >= BAR,
    )


async def run() -> list[Row]:
    """Run the benchmark."""
    async with stack() as servers:
        return [await measure(servers)]


if __name__ == "__main__":
    print(asyncio.run(run()))
