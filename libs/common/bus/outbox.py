"""The outbox: an event is written in the transaction that makes it true.

`add` runs inside the transaction; `relay` runs after it and publishes what this process
wrote. Entries that a crash left behind are swept by the lease holder. An entry goes away
only when the bus has acknowledged it; a copy is dropped by its message id or by the
reader.

Entries that are written together, and go to one stream, are one document for each tenant:
`{_id, at, tenant?, entries: [{subject, payload, stream, headers, key?, withdrawn?}]}`, and what is
`UNREADABLE` to others. Commands to devices have no `tenant` here.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId
from opentelemetry import metrics

from libs.common.bus.connection import Bus, publish_each
from libs.common.bus.publishing import Outgoing, chunks
from libs.common.errors import TooLarge, TooManyRequests, Unavailable
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import Database, Session, StoreError
from libs.common.telemetry.tracing import trace_header

log = logging.getLogger(__name__)

EVENTS = "event"
"""What subjects of `EVENTS` begin with: that stream takes many messages as one."""
SWEEP = 2.0
"""Seconds between sweeps, and the age at which an entry counts as left behind."""
CHUNK, LARGEST = 500, 4 * 1024**2
"""Entries of one document, and bytes, unless one entry has more."""
UNREADABLE = {"subject": "outbox.entries", "payload": b"", "stream": True, "headers": {}}
"""The one entry that 0.1 takes a document for. No stream takes it: it stays for a later version."""
WORKERS, SWEPT = 4, 20
"""Tenants whose documents are swept at a time, and documents of each."""

_depth = metrics.get_meter("thingway").create_gauge(
    "thingway_outbox_depth", description="Writes of events that are not yet published"
)
_age = metrics.get_meter("thingway").create_gauge(
    "thingway_outbox_oldest_seconds", description="For how long the oldest of them waits"
)


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """What is to be said. Without `stream` it is sent plainly, to whoever listens now."""

    subject: str
    payload: bytes
    stream: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    key: str = ""
    """By which it can be withdrawn as long as it has not been published."""


class Outbox:
    """The outbox of one service's database."""

    def __init__(self, database: Database, bus: Bus) -> None:
        self._entries = database["outbox"]
        self._bus = bus

    async def add(self, entries: Sequence[OutboxEntry], session: Session) -> list[dict[str, Any]]:
        """Write entries in the caller's transaction; hand the documents to `relay` after it.

        Raises `TooLarge` for an entry that the bus would take at no time.
        """
        headers = trace_header()
        for entry in entries:
            self._bus.measure(entry.subject, entry.payload, _all_headers(headers | entry.headers))
        groups: dict[tuple[str, str], list[OutboxEntry]] = defaultdict(list)
        for entry in entries:
            groups[_stream(entry.subject), _tenant(entry.subject)].append(entry)
        now = datetime.now(UTC)
        documents = [
            {"_id": ObjectId(), "at": now, "entries": [_stored(entry, headers) for entry in some]}
            | ({"tenant": tenant} if tenant else {})
            | UNREADABLE
            for (_, tenant), group in groups.items()
            for some in chunks(group, CHUNK, LARGEST)
        ]
        if documents:
            await self._entries.insert_many(documents, session=session)
        return documents

    async def withdraw(self, key: str, session: Session) -> None:
        """Empty the entries with a key that are not published yet; they never will be."""
        await self._entries.update_many(
            {"entries.key": key},
            {"$set": {"entries.$[one].payload": b"", "entries.$[one].withdrawn": True}},
            array_filters=[{"one.key": key}],
            session=session,
        )

    async def relay(self, documents: Iterable[dict[str, Any]]) -> None:
        """Publish what was written; on failure leave it to the sweep, and say so."""
        try:
            await self._publish(list(documents))
        except (Unavailable, StoreError) as error:
            log.warning("outbox: %s; the sweep will publish it", error)

    async def sweep(self) -> None:
        """Publish what was left behind, for ever, in turns of tenants; run by the lease holder."""
        try:
            await take_turns("outbox", WORKERS, self._tenants, self._steps, SWEEP)
        finally:  # another process tells from now on
            _depth.set(0)
            _age.set(0)

    async def _tenants(self) -> list[str]:
        """Return the tenants of documents that were left behind; "" is for all without one."""
        oldest = await self._entries.find({}, {"at": 1}).sort("_id", 1).to_list(1)
        waits = (datetime.now(UTC) - oldest[0]["at"]).total_seconds() if oldest else 0
        _age.set(waits)
        _depth.set(await self._entries.estimated_document_count() if oldest else 0)
        if waits < SWEEP:
            return []
        return ["", *await self._entries.distinct("tenant", _left_behind())]

    async def _steps(self, tenant: str) -> Steps:
        """Publish what a tenant left behind; what fails is passed over, and raised at last."""
        query = {"tenant": tenant or None, **_left_behind()}
        failure: Unavailable | None = None
        while documents := await self._entries.find(query).sort("_id", 1).to_list(SWEPT):
            query["_id"] = {"$gt": documents[-1]["_id"]}
            try:
                await self._publish(documents)
            except Unavailable as error:
                failure = error
            yield
        if failure is not None:
            raise failure

    async def _publish(self, documents: list[dict[str, Any]]) -> None:
        """Publish entries stream by stream, so that one that is full holds up no other."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for document in documents:
            groups[_stream(_entries_of(document)[0]["subject"])].append(document)
        outcomes = await asyncio.gather(
            *map(self._publish_group, groups, groups.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _publish_one(self, message: Outgoing) -> None:
        """Publish a command, unless more wait for its device than are kept: it is sent again."""
        try:
            await self._bus.publish([message])
        except TooManyRequests as error:
            log.info("outbox: %s: %s", message.subject, error)

    def _fits(self, entry: dict[str, Any]) -> bool:
        """Whether the bus takes it at all: it may have been written when that took more."""
        try:
            self._bus.measure(entry["subject"], entry["payload"], _all_headers(entry["headers"]))
        except TooLarge as error:
            log.error("outbox: %s; it is left out", error)  # noqa: TRY400 - no trace is needed
            return False
        return True

    async def _publish_group(self, name: str, documents: list[dict[str, Any]]) -> None:
        entries = [
            (f"{document['_id']}-{number}" if number else str(document["_id"]), entry)
            for document in documents
            for number, entry in enumerate(_entries_of(document))
            if not entry.get("withdrawn") and self._fits(entry)
        ]
        streamed = [
            Outgoing(entry["subject"], entry["payload"], key, entry["headers"])
            for key, entry in entries
            if entry["stream"]
        ]
        if name == EVENTS:
            await publish_each(self._bus, streamed)
        else:
            await asyncio.gather(*map(self._publish_one, streamed))
        for _, entry in entries:
            if not entry["stream"]:
                await self._bus.publish_core(entry["subject"], entry["payload"], entry["headers"])
        gone = [document["_id"] for document in documents]
        await self._entries.delete_many({"_id": {"$in": gone}})


def _stream(subject: str) -> str:
    """What the subjects of a stream begin with: one that is full holds up no other."""
    return subject.partition(".")[0]


def _tenant(subject: str) -> str:
    """The tenant of an event; empty for what is no event."""
    stream, _, rest = subject.partition(".")
    return rest.partition(".")[0] if stream == EVENTS else ""


def _left_behind() -> dict[str, Any]:
    """The condition that a document is old enough for the sweep."""
    return {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=SWEEP)}}


def _stored(entry: OutboxEntry, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "subject": entry.subject,
        "payload": entry.payload,
        "stream": entry.stream,
        "headers": {**headers, **entry.headers},
        **({"key": entry.key} if entry.key else {}),
    }


def _entries_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of a document; one that an earlier version wrote is an entry itself."""
    found: list[dict[str, Any]] = document.get("entries", [document])
    return found


def _all_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers of an entry with those that publishing adds, no shorter than they will be."""
    return headers | dict.fromkeys(("Nats-Msg-Id", "Nats-Batch-Id"), "-" * 64)
