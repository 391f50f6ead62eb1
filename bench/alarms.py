"""Benchmark of ingest with 10,000 alarm rules, against ingest alone.

One `device-ingest` and one `device` process evaluate ten rules for each of half the devices. No
report exceeds a threshold. Rounds alternate: in one the rules are disabled and `device` is stopped,
in the other ingest evaluates the rules; the median of the ratios counts.
"""

import asyncio
import signal
import subprocess
import time
from typing import Any

from pymongo import MongoClient, WriteConcern

from bench.ingest import DEVICES, FIRST_ID, REPORTS, ROUNDS, TENANT, drained, fill, prepare
from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from libs.common.bus import Bus
from libs.common.clock import now_ms
from services.device.alarms.model import Rule, ValueCondition, to_document
from services.device.alarms.trigger import REREAD_OVERLAP_MS

RULES = 10_000
BAR = 0.90


def add_rules(database: Any) -> None:
    """Write the rules."""
    now = now_ms()
    names = ("temperature", "humidity", "battery")
    rules = (
        Rule(
            id=number + 1,
            tenant=TENANT,
            name=f"rule {number}",
            severity="MAJOR",
            device=FIRST_ID + number % (DEVICES // 2),
            condition=ValueCondition(
                property=names[number % 3], comparison="GT", threshold=1000 + number
            ),
            created_at=now,
            updated_at=now,
            changed=now,
        )
        for number in range(RULES)
    )
    database.alarm_rules.insert_many(to_document(rule) for rule in rules)


async def enable(database: Any, *, enabled: bool) -> None:
    """Enable or disable the rules, and wait until all processes have read the change."""
    now = now_ms()
    change = {"$set": {"enabled": enabled, "updatedAt": now, "changed": now}}
    await asyncio.to_thread(database.alarm_rules.update_many, {}, change)
    await asyncio.sleep(REREAD_OVERLAP_MS / 1000 + 1)


async def run_round(bus: Bus, ingest: subprocess.Popen[bytes]) -> float:
    """Return the reports per second of a round."""
    ingest.send_signal(signal.SIGSTOP)
    await fill(bus, now_ms())
    started = time.perf_counter()
    ingest.send_signal(signal.SIGCONT)
    await drained(bus)
    return REPORTS / (time.perf_counter() - started)


async def measure(servers: Stack) -> Row:
    """Run the rounds."""
    client: MongoClient[dict[str, Any]] = MongoClient(servers.mongo_url)
    database = client.get_database("bench", write_concern=WriteConcern("majority", j=True))
    ingest, port = servers.start("services.device.ingest_main")
    await ready(port)
    prepare(database)
    add_rules(database)
    judging, port = servers.start("services.device")
    await ready(port)
    bus = await Bus.connect(servers.nats_url, name="bench")
    alone, run_concurrently = [], []
    for number in range(ROUNDS + 1):
        judging.send_signal(signal.SIGSTOP)
        await enable(database, enabled=False)
        without = await run_round(bus, ingest)
        judging.send_signal(signal.SIGCONT)
        await enable(database, enabled=True)
        rate = await run_round(bus, ingest)
        if number:
            alone.append(without)
            run_concurrently.append(rate)
    if database.alarms.count_documents({}):
        raise RuntimeError("rules that nothing is beyond have raised alarms")
    await bus.drain()
    client.close()
    ratio = median_value(
        [batched / other for batched, other in zip(run_concurrently, alone, strict=True)]
    )
    return Row(
        f"ingest with {RULES:,} alarm rules: reports/s, one process of each",
        f"{median_value(run_concurrently):,.0f}",
        f"{median_value(alone):,.0f} alone",
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
