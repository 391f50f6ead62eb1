"""Benchmark of aggregates over the history of a device, against the driver.

Both read the same million reports of two weeks; the driver runs the pipeline that one would write
by hand. Rounds alternate; medians count.
"""

import asyncio
import time
from typing import Any

from pymongo.database import Database

from bench.table import Row, median_value
from bench.things import TENANT, Running, device_service
from libs.common.clock import now_ms
from libs.common.identity import PrincipalKind
from libs.common.store.migrations import CLUSTERED_OPTIONS
from libs.common.things import entity_id
from services.device.telemetry.partitions import (
    DAY_MS,
    collection_name,
    history_key,
    partition_number,
)

REPORTS, DAYS, ROUNDS, CHUNK = 1_000_000, 14, 5, 20_000
DEVICE = 7
BAR = 1.5
FIELD = "value_0"

Json = dict[str, Any]


def _fill(database: Database[Json], start: int) -> list[str]:
    """Write reports like ingest; return the names of their partitions."""
    step = DAYS * DAY_MS // REPORTS
    names = []
    for partition in range(partition_number(start), partition_number(start + REPORTS * step) + 1):
        names.append(collection_name(partition))
        database.create_collection(names[-1], **CLUSTERED_OPTIONS)
    for first in range(0, REPORTS, CHUNK):
        rows: dict[str, list[Json]] = {}
        for number in range(first, first + CHUNK):
            ts = start + number * step
            row = {
                "_id": history_key(DEVICE, ts, number),
                "p": {FIELD: 20 + number % 100 / 10, "value_1": number % 100, "value_2": 1.5},
            }
            rows.setdefault(collection_name(partition_number(ts)), []).append(row)
        for name, documents in rows.items():
            database[name].insert_many(documents, ordered=False)
    return names


def _query_with_driver(
    database: Database[Json], names: list[str], start: int, group: Json
) -> float:
    """Run the pipeline with the driver; return the seconds it takes."""
    keys = {"$gte": history_key(DEVICE, start, 0), "$lte": history_key(DEVICE, 2**62, 0)}
    match = {"$match": {"_id": keys, f"p.{FIELD}": {"$exists": True}}}
    unions = [{"$unionWith": {"coll": name, "pipeline": [match]}} for name in names[1:]]
    started = time.perf_counter()
    assert list(database[names[0]].aggregate([match, *unions, {"$group": group}]))
    return time.perf_counter() - started


async def aggregates(running: Running) -> list[Row]:
    """Measure each kind of aggregate."""
    database = running.mongo["bench"]
    await running.put_product("THREE", 3)
    start = now_ms() - DAYS * DAY_MS
    names = await asyncio.to_thread(_fill, database, start)
    body = {"snDevEUI": "AGGREGATED", "name": "aggregated", "model": "THREE"}
    await running.call(PrincipalKind.APPLICATION, "POST", "/device/openapi/v1/devices", body)
    device = database["devices"].find_one_and_delete({"sn": "AGGREGATED"})
    assert device is not None
    database["devices"].insert_one({**device, "_id": DEVICE, "tenant": TENANT})
    field = f"$p.{FIELD}"
    groups: dict[str, Json] = {
        "MIN": {"_id": None, "v": {"$min": field}},
        "AVG": {"_id": None, "v": {"$avg": field}},
        "COUNT": {"_id": field, "v": {"$sum": 1}},
    }
    rows = []
    for kind, group in groups.items():
        ours, theirs = [], []
        request = {"entity_id": str(entity_id(DEVICE, 1)), "aggregate_type": kind}
        for _ in range(ROUNDS):
            ours.append(
                await running.call(PrincipalKind.USER, "POST", "/entity/history/aggregate", request)
            )
            theirs.append(
                await asyncio.to_thread(_query_with_driver, database, names, start, group)
            )
        ratio = median_value(ours) / median_value(theirs)
        rows.append(
            Row(
                f"{kind} over {REPORTS:,} reports of one device, s",
                f"{median_value(ours):.2f}",
                f"{median_value(theirs):.2f} by the driver",
                ratio,
                f"<= {BAR}",
                ratio <= BAR,
            )
        )
    return rows


async def run() -> list[Row]:
    """Run the benchmark."""
    async with device_service() as running:
        return await aggregates(running)


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
