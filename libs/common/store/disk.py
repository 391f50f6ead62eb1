"""How full MongoDB's disk is, read now and then; `/metrics` shows the last reading."""

from opentelemetry import metrics

from libs.common.repeating import repeat
from libs.common.store.mongo import Database

PERIOD = 30.0
"""Seconds between two readings."""

_meter = metrics.get_meter("thingway")
_used = _meter.create_gauge("thingway_mongo_disk_used_bytes", description="Of MongoDB's volume")
_size = _meter.create_gauge("thingway_mongo_disk_bytes", description="Size of MongoDB's volume")


async def read_disk(database: Database) -> tuple[float, float]:
    """Bytes used and in all of the file system that holds `database`, on its primary."""
    found = await database.command("dbStats")
    return float(found.get("fsUsedSize", 0)), float(found.get("fsTotalSize", 0))


class DiskMetrics:
    """Reads in the background, in one process of the platform."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Read for ever."""
        await repeat(self._read, PERIOD, "metrics of MongoDB's disk")

    async def _read(self) -> None:
        used, size = await read_disk(self._database)
        _used.set(used)
        _size.set(size)
