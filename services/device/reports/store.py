"""Stores a batch: one transaction for history, device events and the ledger.

Every document has a natural key made of the uplink, so a redelivered uplink is found to
be stored already, is not counted again, and only its event is said once more.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from libs.common.store.mongo import DUPLICATE_KEY, BulkFailed, Mongo, Session
from services.device.history.partitions import KEY, Partitions, history_key, partition_of
from services.device.reports.batch import Batch
from services.device.reports.ledger import Ledger
from services.device.reports.uplink import Uplink

Documents = dict[str, list[dict[str, Any]]]
"""Documents to insert, by collection name."""

EVENTS, SEEN = "device_events", "uplinks_seen"


def seen_key(uplink: Uplink) -> bytes:
    """The key of an uplink that leaves no other document."""
    return KEY.pack(0, uplink.received, uplink.sequence)


class ReportStore:
    """Writes batches."""

    def __init__(self, mongo: Mongo, partitions: Partitions, ledger: Ledger) -> None:
        self._mongo = mongo
        self._partitions = partitions
        self._ledger = ledger

    async def store(self, batch: Batch) -> None:
        """Store the reports and events of `batch` and count them and what was refused."""
        await self._partitions.ensure(
            {partition_of(report.ts) for report in batch.reports if report.thing.data_storage}
        )
        documents, rejected = self._documents(batch)
        if any(uplink.delivered > 1 for uplink in batch.uplinks()):
            rejected -= await self._leave_out_known(documents)
        try:
            await self._write(documents, rejected)
        except BulkFailed as error:
            if not _is_duplicate(error):
                raise
            rejected -= await self._leave_out_known(documents)
            await self._write(documents, rejected)

    def _documents(self, batch: Batch) -> tuple[Documents, int]:
        documents: Documents = defaultdict(list)
        now = datetime.now(UTC)
        for report in batch.reports:
            if report.thing.data_storage:
                key = history_key(report.thing.id, report.ts, report.uplink.sequence)
                name = self._partitions.name(partition_of(report.ts))
                documents[name].append({"_id": key, "p": report.properties})
            else:
                documents[SEEN].append({"_id": seen_key(report.uplink), "at": now})
        for event in batch.events:
            key = history_key(event.thing.id, event.ts, event.uplink.sequence)
            documents[EVENTS].append(
                {"_id": key, "e": event.event_id, "o": event.outputs, "at": now}
            )
        for refused in batch.refused:
            documents[SEEN].append({"_id": seen_key(refused.uplink), "at": now, "refused": True})
        return documents, len(batch.refused)

    async def _write(self, documents: Mapping[str, list[dict[str, Any]]], rejected: int) -> None:
        total = sum(len(rows) for rows in documents.values())
        if not total:
            return

        async def work(session: Session) -> None:
            for name, rows in documents.items():
                if rows:
                    await self._mongo.database[name].insert_many(rows, session=session)
            await self._ledger.count(page, session, stored=total - rejected, rejected=rejected)

        with self._ledger.page() as page:
            await self._mongo.transaction(work)

    async def _leave_out_known(self, documents: Documents) -> int:
        """Drop what is stored already; return how many refusals were among it."""
        refused = 0
        for name, rows in documents.items():
            keys = [row["_id"] for row in rows]
            cursor = self._mongo.database[name].find({"_id": {"$in": keys}}, {"_id": 1})
            known = {bytes(row["_id"]) for row in await cursor.to_list(None)}
            refused += sum(bool(row.get("refused")) for row in rows if row["_id"] in known)
            documents[name] = [row for row in rows if row["_id"] not in known]
        return refused


def _is_duplicate(error: BulkFailed) -> bool:
    faults = (error.details or {}).get("writeErrors", [])
    return any(fault.get("code") == DUPLICATE_KEY for fault in faults)
