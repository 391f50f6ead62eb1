"""Records of backups, which metrics show."""

from libs.common.contracts.backups import FinishedBackup
from services.device.telemetry.backup_metrics import BackupMetrics
from tests.integration.conftest import MongoOf


async def test_a_restored_backup_is_recorded_beside_the_last_one(
    mongo_of: MongoOf, database: str
) -> None:
    """A test of an older backup changes neither the last backup nor the last verified one."""
    mongo = mongo_of(database)
    metrics = BackupMetrics(mongo.database)
    await metrics.record(FinishedBackup(2000, 9, verified=True))
    await metrics.record(FinishedBackup(1000, 0, restore_seconds=3.5))
    found = mongo.database["backups"].find({}, {"at": 1, "restore_seconds": 1})
    assert {entry["_id"]: (entry["at"], entry["restore_seconds"]) async for entry in found} == {
        "last": (2000, 0.0),
        "verified": (2000, 0.0),
        "restored": (1000, 3.5),
    }
