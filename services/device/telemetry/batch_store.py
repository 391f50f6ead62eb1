"""Stores a batch: one transaction for history, frames, device events and the ledger.

Every document has a natural key made of the uplink, so a redelivered uplink is found to
be stored already, is not counted again, and only its event is said once more.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from libs.common.errors import Conflict
from libs.common.store.mongo import (
    DUPLICATE_KEY,
    BulkFailed,
    DuplicateKey,
    Mongo,
    Session,
    existing_keys,
)
from services.device.telemetry.batch import Batch
from services.device.telemetry.device_events import EVENTS
from services.device.telemetry.ledger import Ledger
from services.device.telemetry.partitions import (
    KEY,
    Partitions,
    collection_name,
    history_key,
    partition_of,
)
from services.device.telemetry.ports import FrameDecoder
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

SEEN = "uplinks_seen"
DELAY = "d"
"""ms from when a reading or an event was measured until it arrived; missing where it is 0."""
TRIES = 5
"""Attempts at a batch whose frames come from several sides at once."""


def seen_key(uplink: Uplink) -> bytes:
    """The key of an uplink that leaves no other document."""
    return KEY.pack(0, uplink.received, uplink.sequence)


class _Row(NamedTuple):
    """What one uplink leaves: a document of a collection, and a count."""

    collection: str | None
    """None where the count is all."""
    document: dict[str, Any]
    uplink: Uplink
    refused: bool = False


class ReportStore:
    """Writes batches."""

    def __init__(
        self, mongo: Mongo, partitions: Partitions, ledger: Ledger, frames: FrameDecoder
    ) -> None:
        self._mongo = mongo
        self._database = mongo.database
        self._partitions = partitions
        self._ledger = ledger
        self._frames = frames

    async def check(self) -> None:
        """Raise unless the database takes writes."""
        await self._mongo.ping()

    async def store(self, batch: Batch) -> None:
        """Store the reports and events of `batch` and count them and what was refused.

        What comes again is stored as it is judged now, and counted as it was the first time.
        """
        await self._partitions.ensure(
            {partition_of(one.ts) for one in batch.reports if one.thing.data_storage}
            | {partition_of(one.ts) for frame in batch.frames for one in frame.past}
        )
        again = [uplink for uplink in batch.uplinks() if uplink.delivered > 1]
        known = await self._ledger.known(again)
        for _ in range(TRIES):
            if again and batch.frames:
                await self._frames.remove_stored(batch)
            rows = self._rows(batch)
            if again:
                rows = await self._without_stored(rows)
            try:
                await self._write(rows, known)
            except BulkFailed as error:
                if not _is_duplicate(error):
                    raise
                again = [row.uplink for row in rows]
                known = await self._ledger.known(again)
            else:
                return
        raise Conflict("frames of this batch are being stored by others")

    async def store_confirmed(
        self,
        uplink: Uplink,
        thing: Thing,
        properties: dict[str, Any] | None,
        work: Callable[[Session], Awaitable[bool]],
    ) -> bool:
        """Do `work` and count the reply that caused it, unless `work` says that it did nothing.

        What the reply confirms is stored like a report; `properties` is None where it confirms
        none.
        """
        partition = partition_of(uplink.received)
        if properties is not None:
            await self._partitions.ensure({partition})

        async def stored(session: Session) -> bool:
            if not await work(session):
                return False
            if properties is not None and thing.data_storage:
                key = history_key(thing.id, uplink.received, uplink.sequence)
                history = self._partitions.collection(partition)
                await history.insert_one({"_id": key, "p": properties}, session=session)
            return True

        return await self._ledger.counting(stored, stored=[uplink])

    async def store_repetition(self, uplink: Uplink) -> None:
        """Count an uplink that is taken, with nothing to do; idempotent."""

        async def work(session: Session) -> bool:
            row = {"_id": seen_key(uplink), "at": datetime.now(UTC)}
            await self._database[SEEN].insert_one(row, session=session)
            return True

        with suppress(DuplicateKey):
            await self._ledger.counting(work, stored=[uplink])

    def _rows(self, batch: Batch) -> list[_Row]:
        rows: list[_Row] = []
        now = datetime.now(UTC)
        for report in batch.reports:
            if report.thing.data_storage:
                key = history_key(report.thing.id, report.ts, report.uplink.sequence)
                name = collection_name(partition_of(report.ts))
                document = _delayed(report.uplink, report.ts, {"_id": key, "p": report.properties})
                rows.append(_Row(name, document, report.uplink))
            else:
                seen = {"_id": seen_key(report.uplink), "at": now}
                rows.append(_Row(SEEN, seen, report.uplink))
        kept = {frame.uplink.sequence for frame in batch.frames}
        rejected = {refused.uplink.sequence for refused in batch.refused}
        past: dict[bytes, _Row] = {}
        for frame in batch.frames:
            refused_whole = frame.uplink.sequence in rejected
            rows.append(_Row(*self._frames.document(frame), frame.uplink, refused=refused_whole))
            for key, reading in frame.remembered() if frame.thing.data_storage else ():
                name = collection_name(partition_of(reading.ts))
                document = {"_id": key, "p": reading.properties}
                row = _Row(name, _delayed(frame.uplink, reading.ts, document), frame.uplink)
                past.setdefault(key, row)
        rows += past.values()
        for uplink in batch.repeated:
            rows.append(_Row(SEEN, {"_id": seen_key(uplink), "at": now}, uplink))
        for event in batch.events:
            key = history_key(event.thing.id, event.ts, event.uplink.sequence)
            document = {"_id": key, "e": event.event_id, "o": event.outputs, "at": now}
            rows.append(_Row(EVENTS, _delayed(event.uplink, event.ts, document), event.uplink))
        for refused in batch.refused:
            if refused.uplink.sequence in kept:
                continue
            if refused.beyond:
                rows.append(_Row(None, {}, refused.uplink, refused=True))
                continue
            seen = {"_id": seen_key(refused.uplink), "at": now, "refused": True}
            rows.append(_Row(SEEN, seen, refused.uplink, refused=True))
        return rows

    async def _write(self, rows: Sequence[_Row], known: Collection[int]) -> None:
        if not rows:
            return
        documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row.collection is not None:
                documents[row.collection].append(row.document)
        new = [row for row in rows if row.uplink.sequence not in known]
        rejected = {row.uplink.sequence: row.uplink for row in new if row.refused}
        stored = {
            row.uplink.sequence: row.uplink for row in new if row.uplink.sequence not in rejected
        }

        async def work(session: Session) -> bool:
            for name, some in documents.items():
                await self._database[name].insert_many(some, session=session)
            return True

        await self._ledger.counting(work, stored=stored.values(), rejected=rejected.values())

    async def _without_stored(self, rows: Sequence[_Row]) -> list[_Row]:
        """Leave out the documents that are stored already."""
        keys: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            if row.collection is not None:
                keys[row.collection].append(row.document["_id"])
        known: set[tuple[str | None, bytes]] = set()
        for name, some in keys.items():
            known |= {(name, key) for key in await existing_keys(self._database, name, some)}
        return [row for row in rows if (row.collection, row.document.get("_id")) not in known]


def _delayed(uplink: Uplink, ts: int, document: dict[str, Any]) -> dict[str, Any]:
    if delay := uplink.received - ts:
        document[DELAY] = delay
    return document


def _is_duplicate(error: BulkFailed) -> bool:
    faults = (error.details or {}).get("writeErrors", [])
    return any(fault.get("code") == DUPLICATE_KEY for fault in faults)
