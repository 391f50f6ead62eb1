"""The last backup of the installation and its tests, shown as metrics by all replicas."""

import msgspec
from opentelemetry import metrics

from libs.common.bus import RpcServer
from libs.common.contracts.auth import Done
from libs.common.contracts.backups import FinishedBackup
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database

READ_INTERVAL_SECONDS = 60.0
"""Seconds between two reads of the stored records of backups."""
LAST, VERIFIED, RESTORED = "last", "verified", "restored"
_create_gauge = metrics.get_meter("thingway").create_gauge
_timestamp_gauge_by_record = {
    LAST: _create_gauge(
        "thingway_backup_finished_timestamp_seconds",
        description="Time of the state in the last backup, s since 1970; 0 without a backup",
    ),
    VERIFIED: _create_gauge(
        "thingway_backup_verified_timestamp_seconds",
        description="Time of the state in the last verified backup; 0 without one",
    ),
    RESTORED: _create_gauge(
        "thingway_backup_restored_timestamp_seconds",
        description="Time of the state in the last backup that was restored as a test; 0 without",
    ),
}
_restore_duration_gauge = _create_gauge(
    "thingway_backup_restore_seconds", description="Duration of the last test of a restore"
)
_size_gauge_by_field = {
    "bytes": _create_gauge("thingway_backup_bytes", description="Size of the last backup"),
    "disk_used": _create_gauge(
        "thingway_backup_disk_used_bytes", description="Used bytes of the backups' volume"
    ),
    "disk_size": _create_gauge(
        "thingway_backup_disk_bytes", description="Size of the backups' volume"
    ),
}


class BackupMetrics:
    """Stores the last backup, the last verified and the last restored one; shows their times."""

    def __init__(self, database: Database) -> None:
        self._records = database["backups"]

    def offer(self, rpc: RpcServer) -> None:
        """Offer the RPC operation that records a backup."""
        rpc.offer("record_backup", FinishedBackup, self.record)

    async def record(self, backup: FinishedBackup) -> Done:
        """Store a finished backup."""
        keys = (RESTORED,) if backup.restore_seconds else (LAST,)
        for key in (*keys, VERIFIED) if backup.verified else keys:
            document = {"_id": key, **msgspec.to_builtins(backup)}
            await self._records.replace_one({"_id": key}, document, upsert=True)
        await self._read()
        return Done()

    async def run(self) -> None:
        """Read the records for ever; another replica may have stored them."""
        await repeat(self._read, READ_INTERVAL_SECONDS, "metrics of backups")

    async def _read(self) -> None:
        records_by_id = {record["_id"]: record async for record in self._records.find({})}
        times = {key: records_by_id.get(key, {"at": 0})["at"] for key in _timestamp_gauge_by_record}
        times[VERIFIED] = max(times[VERIFIED], times[RESTORED])
        for key, gauge in _timestamp_gauge_by_record.items():
            gauge.set(times[key] / 1000)
        _restore_duration_gauge.set(records_by_id.get(RESTORED, {}).get("restore_seconds", 0))
        for field, gauge in _size_gauge_by_field.items():
            if size := records_by_id.get(LAST, {}).get(field):
                gauge.set(size)
