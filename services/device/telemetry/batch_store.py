"""Stores a batch in one transaction: history, frames, events and the ledger.

The key of every document derives from its uplink. The documents of a redelivered uplink therefore
exist already, the uplink is not counted again, and only its event is published once more.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from libs.common.errors import Conflict
from libs.common.store.mongo import (
    DUPLICATE_KEY_CODE,
    BulkFailed,
    DuplicateKey,
    Mongo,
    Session,
)
from services.device.telemetry.batch import Batch
from services.device.telemetry.device_events import EVENTS_COLLECTION
from services.device.telemetry.ledger import Ledger
from services.device.telemetry.partitions import (
    KEY_FORMAT,
    Partitions,
    collection_name,
    history_key,
    partition_number,
)
from services.device.telemetry.ports import FrameDecoder
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

SEEN_COLLECTION = "uplinks_seen"
DELAY_FIELD = "d"
"""ms between a reading or event and its arrival; missing if 0."""
MAX_ATTEMPTS = 5
"""Attempts to store a batch whose frames other processes store at the same time."""


def seen_key(uplink: Uplink) -> bytes:
    """Return the key under which an uplink without any other document is recorded."""
    return KEY_FORMAT.pack(0, uplink.received, uplink.sequence)


class ClosingReply(NamedTuple):
    """A reply that closes a command."""

    uplink: Uplink
    thing: Thing
    properties: dict[str, Any] | None
    """The properties that it confirms."""


class _UplinkDocument(NamedTuple):
    """A document to store for an uplink, which is counted as stored or rejected."""

    collection: str | None
    """None if it is only counted."""
    document: dict[str, Any]
    uplink: Uplink
    rejected: bool = False


class BatchStore:
    """Stores batches of uplinks."""

    def __init__(
        self, mongo: Mongo, partitions: Partitions, ledger: Ledger, frames: FrameDecoder
    ) -> None:
        self._mongo = mongo
        self._database = mongo.database
        self._partitions = partitions
        self._ledger = ledger
        self._frames = frames

    async def check_writable(self) -> None:
        """Raise unless the database accepts writes."""
        await self._mongo.ping()

    async def store(self, batch: Batch) -> None:
        """Store the reports, frames and events of a batch; count these and the rejections.

        A redelivered uplink is stored by its current validation, and counted by its first one.
        Raises `Conflict` if other processes store the same frames during `MAX_ATTEMPTS` attempts.
        """
        await self._partitions.ensure(
            {partition_number(report.ts) for report in batch.reports if report.thing.data_storage}
            | {partition_number(reading.ts) for frame in batch.frames for reading in frame.past}
        )
        redelivered = [uplink for uplink in batch.uplinks_to_store() if uplink.delivered > 1]
        counted = await self._ledger.find_counted_sequences(redelivered)
        for _ in range(MAX_ATTEMPTS):
            if redelivered and batch.frames:
                await self._frames.mark_stored_as_duplicates(batch)
            rows = self._build_rows(batch)
            if redelivered:
                rows = await self._filter_unstored(rows)
            try:
                await self._write(rows, counted)
            except BulkFailed as error:
                if not _is_duplicate(error):
                    raise
                redelivered = [row.uplink for row in rows]
                counted = await self._ledger.find_counted_sequences(redelivered)
            else:
                return
        raise Conflict("other processes are storing frames of this batch")

    async def store_replies(
        self,
        received_times: Iterable[int],
        close: Callable[[Session], Awaitable[Sequence[ClosingReply]]],
    ) -> None:
        """Run `close` and count the replies that it returns, in one transaction.

        Confirmed properties are stored like a report. `received_times` (ms) are the arrival times
        of all replies that `close` may return.
        """
        await self._partitions.ensure({partition_number(moment) for moment in received_times})
        closing: list[Uplink] = []

        async def close_and_store(session: Session) -> bool:
            closed = await close(session)
            closing[:] = [uplink for uplink, _, _ in closed]
            documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
            for uplink, thing, properties in closed:
                if properties is not None and thing.data_storage:
                    key = history_key(thing.id, uplink.received, uplink.sequence)
                    name = collection_name(partition_number(uplink.received))
                    documents[name].append({"_id": key, "p": properties})
            for name, new_documents in documents.items():
                await self._mongo.direct[name].insert_many(new_documents, session=session)
            return bool(closed)

        await self._ledger.write_and_count(close_and_store, stored=closing)

    async def count_without_effect(self, uplink: Uplink) -> None:
        """Count an accepted uplink that has no effect; idempotent."""

        async def mark_seen(session: Session) -> bool:
            row = {"_id": seen_key(uplink), "at": datetime.now(UTC)}
            await self._mongo.direct[SEEN_COLLECTION].insert_one(row, session=session)
            return True

        with suppress(DuplicateKey):
            await self._ledger.write_and_count(mark_seen, stored=[uplink])

    def _build_rows(self, batch: Batch) -> list[_UplinkDocument]:
        rows: list[_UplinkDocument] = []
        now = datetime.now(UTC)
        for report in batch.reports:
            if report.thing.data_storage:
                key = history_key(report.thing.id, report.ts, report.uplink.sequence)
                name = collection_name(partition_number(report.ts))
                document = _add_delay(
                    report.uplink, report.ts, {"_id": key, "p": report.properties}
                )
                rows.append(_UplinkDocument(name, document, report.uplink))
            else:
                seen_document = {"_id": seen_key(report.uplink), "at": now}
                rows.append(_UplinkDocument(SEEN_COLLECTION, seen_document, report.uplink))
        frame_sequences = {frame.uplink.sequence for frame in batch.frames}
        rejected_sequences = {rejected.uplink.sequence for rejected in batch.rejected}
        past: dict[bytes, _UplinkDocument] = {}
        for frame in batch.frames:
            is_rejected = frame.uplink.sequence in rejected_sequences
            rows.append(
                _UplinkDocument(
                    *self._frames.build_document(frame), frame.uplink, rejected=is_rejected
                )
            )
            for key, reading in frame.past_readings() if frame.thing.data_storage else ():
                name = collection_name(partition_number(reading.ts))
                document = {"_id": key, "p": reading.properties}
                row = _UplinkDocument(
                    name, _add_delay(frame.uplink, reading.ts, document), frame.uplink
                )
                past.setdefault(key, row)
        rows += past.values()
        for uplink in batch.duplicates:
            rows.append(
                _UplinkDocument(SEEN_COLLECTION, {"_id": seen_key(uplink), "at": now}, uplink)
            )
        for event in batch.events:
            key = history_key(event.thing.id, event.ts, event.uplink.sequence)
            document = {"_id": key, "e": event.event_id, "o": event.outputs, "at": now}
            rows.append(
                _UplinkDocument(
                    EVENTS_COLLECTION, _add_delay(event.uplink, event.ts, document), event.uplink
                )
            )
        for rejected in batch.rejected:
            if rejected.uplink.sequence in frame_sequences:
                continue
            if rejected.exceeds_limit:
                rows.append(_UplinkDocument(None, {}, rejected.uplink, rejected=True))
                continue
            seen_document = {"_id": seen_key(rejected.uplink), "at": now, "refused": True}
            rows.append(
                _UplinkDocument(SEEN_COLLECTION, seen_document, rejected.uplink, rejected=True)
            )
        return rows

    async def _write(self, rows: Sequence[_UplinkDocument], counted: Collection[int]) -> None:
        if not rows:
            return
        documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row.collection is not None:
                documents[row.collection].append(row.document)
        new = [row for row in rows if row.uplink.sequence not in counted]
        rejected = {row.uplink.sequence: row.uplink for row in new if row.rejected}
        stored = {
            row.uplink.sequence: row.uplink for row in new if row.uplink.sequence not in rejected
        }

        async def insert_documents(session: Session) -> bool:
            for name, new_documents in documents.items():
                await self._mongo.direct[name].insert_many(new_documents, session=session)
            return True

        await self._ledger.write_and_count(
            insert_documents, stored=stored.values(), rejected=rejected.values()
        )

    async def _filter_unstored(self, rows: Sequence[_UplinkDocument]) -> list[_UplinkDocument]:
        keys: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            if row.collection is not None:
                keys[row.collection].append(row.document["_id"])
        stored_keys: set[tuple[str | None, bytes]] = set()
        for name, collection_keys in keys.items():
            stored_keys |= {(name, key) for key in await self._existing_keys(name, collection_keys)}
        return [row for row in rows if (row.collection, row.document.get("_id")) not in stored_keys]

    async def _existing_keys(self, name: str, keys: Sequence[bytes]) -> list[bytes]:
        """Return the `keys` that exist in a clustered collection; each is looked up separately."""
        lookup = {"from": name, "localField": "key", "foreignField": "_id", "as": "found"}
        existing: list[dict[str, Any]] = [
            {"$documents": [{"key": key} for key in keys]},
            {"$lookup": {**lookup, "pipeline": [{"$project": {"_id": 1}}]}},
            {"$match": {"found": {"$ne": []}}},
        ]
        return [bytes(row["key"]) async for row in await self._database.aggregate(existing)]


def _add_delay(uplink: Uplink, ts: int, document: dict[str, Any]) -> dict[str, Any]:
    if delay := uplink.received - ts:
        document[DELAY_FIELD] = delay
    return document


def _is_duplicate(error: BulkFailed) -> bool:
    faults = (error.details or {}).get("writeErrors", [])
    return any(fault.get("code") == DUPLICATE_KEY_CODE for fault in faults)
