"""Partitions of history: one clustered collection per week, dropped when old.

`_id` is binary: thing id, time in ms and sequence in `UPLINK`, 8 bytes each, big-endian. A page of
one thing is therefore one range scan, and a redelivered report has the same key.
"""

import struct
from collections.abc import Iterable
from functools import cache

from libs.common.clock import from_ms
from libs.common.store.migrations import (
    CLUSTERED_OPTIONS,
    create_missing_collection,
    shard_empty_collection,
)
from libs.common.store.mongo import Collection, Database, Document, build_key_condition
from services.device.things.device_store import sample_device_ids

DAY_MS = 86_400_000
PARTITION_MS = 7 * DAY_MS
COLLECTION_PREFIX = "history_"
KEY_FORMAT = struct.Struct(">QQQ")
MAX_KEY_PART = 2**64 - 1
"""The largest time or sequence in a key."""
SAMPLED_DEVICES = 1000
"""Maximum devices whose ids determine the ranges of shards of a new partition."""


def history_key(device_id: int, ts: int, sequence: int) -> bytes:
    """Return the key of a report in history (24 bytes)."""
    return KEY_FORMAT.pack(device_id, ts, sequence)


def keys_between(device_id: int, first: int = 0, last: int = MAX_KEY_PART) -> dict[str, bytes]:
    """Return the condition on keys of a device's reports from `first` to `last` (ms)."""
    return {
        "$gte": history_key(device_id, first, 0),
        "$lte": history_key(device_id, last, MAX_KEY_PART),
    }


def partition_number(ts: int) -> int:
    """Return the number of the partition that holds `ts` (ms): weeks since 1970."""
    return ts // PARTITION_MS


@cache
def collection_name(partition: int) -> str:
    """Return `history_` and the first day of the partition."""
    first = from_ms(partition * PARTITION_MS)
    return f"{COLLECTION_PREFIX}{first:%Y%m%d}"


class Partitions:
    """The partitions of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._made: set[int] = set()

    def collection(self, partition: int) -> Collection:
        """Return the collection of a partition."""
        return self._database[collection_name(partition)]

    async def ensure(self, partitions: Iterable[int]) -> None:
        """Create missing partitions, as a transaction must not create one."""
        for partition in set(partitions) - self._made:
            await create_missing_collection(
                self._database, collection_name(partition), **CLUSTERED_OPTIONS
            )
            await shard_empty_collection(
                self._database, collection_name(partition), self._sample_keys
            )
            self._made.add(partition)

    async def _sample_keys(self) -> list[bytes]:
        """Return the first keys of a sample of the devices, in order."""
        devices = await sample_device_ids(self._database, SAMPLED_DEVICES)
        return sorted(history_key(device, 0, 0) for device in devices)

    async def find_properties(self, keys: Iterable[bytes]) -> dict[bytes, Document]:
        """Return the properties of stored reports by history key; unknown keys are missing."""
        weeks: dict[int, list[bytes]] = {}
        for key in keys:
            weeks.setdefault(partition_number(KEY_FORMAT.unpack(key)[1]), []).append(key)
        properties: dict[bytes, Document] = {}
        for week, week_keys in weeks.items():
            rows = self.collection(week).find(
                {"_id": build_key_condition(week_keys)}, batch_size=len(week_keys) + 1
            )
            properties |= {bytes(row["_id"]): row["p"] for row in await rows.to_list(None)}
        return properties

    async def find_report_times(
        self, device_id: int, first: int, last: int, limit_per_partition: int
    ) -> set[int]:
        """Return the times (ms) of reports from `first` to `last`.

        Of each partition, only the `limit_per_partition` oldest reports are read.
        """
        report_times: set[int] = set()
        keys = keys_between(device_id, first, last)
        for week in range(partition_number(first), partition_number(last) + 1):
            rows = self.collection(week).find({"_id": keys}, {"_id": 1}, sort=[("_id", 1)])
            async for row in rows.limit(limit_per_partition):
                report_times.add(KEY_FORMAT.unpack(row["_id"])[1])
        return report_times

    async def collections(self) -> list[Collection]:
        """Return the collections of all partitions, the oldest first."""
        names = await self._database.list_collection_names(filter={"name": {"$regex": "^history_"}})
        return [self._database[name] for name in sorted(names)]

    async def drop_before(self, oldest: int) -> list[str]:
        """Drop every partition that ends before `oldest` (ms); return their names."""
        last_kept = collection_name(partition_number(oldest))
        old = [found for found in await self.collections() if found.name < last_kept]
        for collection in old:
            await collection.drop()
        self._made = {number for number in self._made if collection_name(number) >= last_kept}
        return [collection.name for collection in old]
