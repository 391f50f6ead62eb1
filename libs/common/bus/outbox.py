"""The outbox: events are written in the transaction that causes them.

`store_entries` runs inside the transaction. `publish_stored` runs after it and publishes the
entries of this process. The lease holder sweeps entries that remain after a crash. A document is
deleted only when the bus has acknowledged its entries. JetStream or the reader drops duplicates by
message id.
The entries of a transaction form one document per tenant: `{_id, at, tenant?, entries: [{subject,
payload, stream, headers, id?, withdrawn?}]}`, and the fields of `UNREADABLE_FIELDS`. If one stream
accepts its entries and another does not, the accepted ones get `withdrawn`, which means published.
`publish_or_store` publishes entries, and stores only events that the bus does not accept. It is for
changes whose own repetition publishes the entries again after a crash.
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
from libs.common.bus.publishing import OutgoingMessage, split_messages
from libs.common.errors import TooLarge, TooManyRequests, Unavailable
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Database, Session, StoreError
from libs.common.telemetry.tracing import trace_header

log = logging.getLogger(__name__)

EVENT_WORD = "event"
"""The first word of the subjects of the stream `EVENTS`, which accepts atomic batches."""
IDLE_SWEEP_SECONDS = 10.0
"""Seconds between sweeps while no document remains."""
MIN_AGE_SECONDS = 2.0
"""Seconds after which a sweep publishes an entry, and between sweeps while documents remain."""
ENTRIES_PER_DOCUMENT, MAX_DOCUMENT_BYTES = 500, 4 * 1024**2
"""Maximum entries and bytes of a document; a single larger entry is allowed."""
UNREADABLE_FIELDS = {"subject": "outbox.entries", "payload": b"", "stream": True, "headers": {}}
"""Fields that version 0.1 reads as one entry. No stream accepts it, so version 0.1 leaves the
document to a later version."""
CONCURRENT_TENANTS, DOCUMENTS_PER_STEP = 4, 20
"""Tenants that are swept concurrently, and documents per tenant and step."""

_depth_gauge = metrics.get_meter("thingway").create_gauge(
    "thingway_outbox_depth", description="Documents with events that are not published yet"
)
_age_gauge = metrics.get_meter("thingway").create_gauge(
    "thingway_outbox_oldest_seconds", description="Age of the oldest unpublished document"
)


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A message to publish. Without `stream`, only current subscribers receive it."""

    subject: str
    payload: bytes
    stream: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    id: str = ""
    """The message id of an entry that several processes may publish."""


class Outbox:
    """The outbox in the database of one service."""

    def __init__(self, database: Database, bus: Bus) -> None:
        self._documents = database["outbox"]
        self._bus = bus
        self._wake = asyncio.Event()

    async def store_entries(
        self, entries: Sequence[OutboxEntry], session: Session
    ) -> list[dict[str, Any]]:
        """Write entries in the caller's transaction; return the documents for `publish_stored`.

        Raises `TooLarge` for an entry above the limit of the bus.
        """
        if documents := self.build_documents(entries):
            await self._documents.insert_many(documents, session=session)
        return documents

    def build_documents(self, entries: Sequence[OutboxEntry]) -> list[dict[str, Any]]:
        """Return the documents of entries for `publish_or_store`.

        An entry without a tenant, such as a command to a device, belongs to the tenant of the
        previous entry. Raises `TooLarge` for an entry above the limit of the bus.
        """
        headers, tenant = trace_header(), ""
        groups: dict[str, list[OutboxEntry]] = defaultdict(list)
        for entry in entries:
            self._bus.check_message_size(
                entry.subject, entry.payload, _add_header_placeholders(headers | entry.headers)
            )
            tenant = _event_tenant(entry.subject) or tenant
            groups[tenant].append(entry)
        now = datetime.now(UTC)
        return [
            {
                "_id": ObjectId(),
                "at": now,
                "entries": [_stored_entry(entry, headers) for entry in chunk],
            }
            | ({"tenant": tenant} if tenant else {})
            | UNREADABLE_FIELDS
            for tenant, group in groups.items()
            # events last, because version 0.1 publishes all entries like the first one
            for chunk in split_messages(
                sorted(group, key=_is_event), ENTRIES_PER_DOCUMENT, MAX_DOCUMENT_BYTES
            )
        ]

    async def publish_stored(self, documents: Iterable[dict[str, Any]]) -> None:
        """Publish documents; after a failure, log it and leave them to the sweep."""
        try:
            await self._publish(list(documents))
        except (Unavailable, StoreError) as error:
            log.warning("outbox: %s; the sweep will publish it", error)
            self._sweep_soon()

    async def publish_or_store(self, documents: Sequence[dict[str, Any]]) -> bool:
        """Publish documents that are not stored; after a failure, store their events.

        Messages that are not events are not stored: the caller must send them again. Return False
        if the events could not be stored either: the caller must then publish all again.
        """
        failure = await self._publish_groups(documents)
        if failure is None:
            return True
        log.warning("outbox: %s; the sweep will publish it", failure)
        for document in documents:
            document["entries"] = [
                entry
                for entry in document["entries"]
                if _stream_word(entry["subject"]) == EVENT_WORD and not _is_done(entry)
            ]
        try:
            if remaining := [document for document in documents if document["entries"]]:
                await self._documents.insert_many(remaining)
        except StoreError as error:
            log.warning("outbox: %s; the caller will publish it", error)
            return False
        self._sweep_soon()
        return True

    async def sweep(self) -> None:
        """Publish remaining documents for ever, tenants in turn; run by the lease holder."""
        try:
            await take_turns(
                "outbox",
                CONCURRENT_TENANTS,
                self._tenants,
                self._steps,
                IDLE_SWEEP_SECONDS,
                self._wake,
            )
        finally:  # the new lease holder reports these metrics from now on
            _depth_gauge.set(0)
            _age_gauge.set(0)

    async def _tenants(self) -> list[str]:
        """Return the tenants of old enough documents; "" means documents without a tenant.

        Also updates the metrics.
        """
        oldest = await self._documents.find({}, {"at": 1}).sort("_id", 1).to_list(1)
        waits = (datetime.now(UTC) - oldest[0]["at"]).total_seconds() if oldest else 0
        _age_gauge.set(waits)
        _depth_gauge.set(await self._documents.estimated_document_count() if oldest else 0)
        if oldest:
            self._sweep_soon()
        if waits < MIN_AGE_SECONDS:
            return []
        return ["", *await self._documents.distinct("tenant", _sweep_condition())]

    def _sweep_soon(self) -> None:
        asyncio.get_running_loop().call_later(MIN_AGE_SECONDS, self._wake.set)

    async def _steps(self, tenant: str) -> TenantSteps:
        """Publish a tenant's remaining documents; raise a failure after all were tried."""
        query = {"tenant": tenant or None, **_sweep_condition()}
        failure: Unavailable | None = None
        while (
            documents := await self._documents.find(query)
            .sort("_id", 1)
            .to_list(DOCUMENTS_PER_STEP)
        ):
            query["_id"] = {"$gt": documents[-1]["_id"]}
            try:
                await self._publish(documents)
            except Unavailable as error:
                failure = error
            yield
        if failure is not None:
            raise failure

    async def _publish(self, documents: list[dict[str, Any]]) -> None:
        """Publish and delete documents; raise a failure after all were tried."""
        failure = await self._publish_groups(documents)
        published = []
        for document in documents:
            entries = _entries(document)
            done = {
                f"entries.{n}.withdrawn": True for n, entry in enumerate(entries) if _is_done(entry)
            }
            if len(done) == len(entries):
                published.append(document["_id"])
            elif done:
                await self._documents.update_one({"_id": document["_id"]}, {"$set": done})
        if published:
            await self._documents.delete_many({"_id": {"$in": published}})
        if failure is not None:
            raise failure

    async def _publish_groups(self, documents: Iterable[dict[str, Any]]) -> Unavailable | None:
        """Publish stream by stream, so that a full stream does not delay the others.

        Published entries get `withdrawn`. Returns a failure.
        """
        groups: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for document in documents:
            for number, entry in enumerate(_entries(document)):
                message_id = f"{document['_id']}-{number}" if number else str(document["_id"])
                if not _is_done(entry):
                    groups[_stream_word(entry["subject"])].append(
                        (entry.get("id", message_id), entry)
                    )
        groups = dict(sorted(groups.items(), key=lambda group: group[0] != EVENT_WORD))
        outcomes = await asyncio.gather(
            *map(self._publish_group, groups, groups.values()), return_exceptions=True
        )
        failure = None
        for group, outcome in zip(groups.values(), outcomes, strict=True):
            if outcome is None:
                for _, entry in group:
                    entry["withdrawn"] = True
            elif isinstance(outcome, Unavailable):
                failure = outcome
            else:
                raise outcome
        return failure

    async def _publish_one(self, message: OutgoingMessage) -> None:
        """Publish a message, such as a command; drop it if its subject has too many messages.

        The sender of a command repeats it.
        """
        try:
            await self._bus.publish([message])
        except TooManyRequests as error:
            log.info("outbox: %s: %s", message.subject, error)

    def _fits(self, entry: dict[str, Any]) -> bool:
        """Return whether the bus accepts the entry: its limit may be lower than at storing."""
        try:
            self._bus.check_message_size(
                entry["subject"], entry["payload"], _add_header_placeholders(entry["headers"])
            )
        except TooLarge as error:
            log.error("outbox: %s; it is dropped", error)  # noqa: TRY400 - no trace is needed
            return False
        return True

    async def _publish_group(self, name: str, entries: list[tuple[str, dict[str, Any]]]) -> None:
        fitting = [(key, entry) for key, entry in entries if self._fits(entry)]
        streamed = [
            OutgoingMessage(entry["subject"], entry["payload"], key, entry["headers"])
            for key, entry in fitting
            if entry["stream"]
        ]
        if name == EVENT_WORD:
            await publish_each(self._bus, streamed)
        else:
            await asyncio.gather(*map(self._publish_one, streamed))
        for _, entry in fitting:
            if not entry["stream"]:
                await self._bus.publish_core(entry["subject"], entry["payload"], entry["headers"])


def _stream_word(subject: str) -> str:
    """Return the first word of a subject, which identifies its stream."""
    return subject.partition(".")[0]


def _event_tenant(subject: str) -> str:
    """Return the tenant of an event's subject; empty for other subjects."""
    stream, _, rest = subject.partition(".")
    return rest.partition(".")[0] if stream == EVENT_WORD else ""


def _is_event(entry: OutboxEntry) -> bool:
    return _stream_word(entry.subject) == EVENT_WORD


def _is_done(entry: dict[str, Any]) -> bool:
    return bool(entry.get("withdrawn"))


def _sweep_condition() -> dict[str, Any]:
    """Return the condition for documents that are old enough for the sweep."""
    return {"at": {"$lt": datetime.now(UTC) - timedelta(seconds=MIN_AGE_SECONDS)}}


def _stored_entry(entry: OutboxEntry, headers: dict[str, str]) -> dict[str, Any]:
    return {
        "subject": entry.subject,
        "payload": entry.payload,
        "stream": entry.stream,
        "headers": {**headers, **entry.headers},
        **({"id": entry.id} if entry.id else {}),
    }


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a document; version 0.1 stored each entry as a document."""
    entries: list[dict[str, Any]] = document.get("entries", [document])
    return entries


def _add_header_placeholders(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers with placeholders for those that publishing adds, equally long."""
    return headers | dict.fromkeys(("Nats-Msg-Id", "Nats-Batch-Id"), "-" * 64)
