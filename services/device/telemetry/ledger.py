"""The ledger counts accepted, stored and rejected messages; metrics of `UPLINK`.

A count is written in the transaction that stores the counted messages, so `accepted = stored +
rejected + waiting` holds after any crash. Concurrent transactions count in different documents
(pages), because two that write one document conflict and the later one is repeated with its whole
batch.

A page also stores which uplinks it counted, as long as `UPLINK` may deliver them again: an uplink
that is judged differently after a redelivery is not counted twice.

The metric `accepted` is the sum of handled and waiting messages: a message leaves `UPLINK` only
after it is counted. It is a gauge, because it falls when second copies of MQTT messages, which wait
but are not counted, leave `UPLINK`. The last sequence of the stream would include these copies.
"""

import logging
import time
import zlib
from array import array
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any
from uuid import uuid4

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.bus import Bus
from libs.common.errors import Unavailable
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Mongo, Session
from libs.common.store_metrics import StreamContent, read_stream
from services.device.telemetry.uplink import SEQUENCE_BITS, Uplink, global_sequence

log = logging.getLogger(__name__)

TOTALS_PAGE_ID = "past"
"""Id of the page to which the counts of old pages are added."""
MIN_MERGED_PAGE_AGE = timedelta(days=1)
"""Age from which a page is merged; a process that still uses it begins again at 0."""
PAGES_PER_MERGE = 500
"""Maximum pages that are merged in one transaction."""


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """Counts since installation."""

    stored: int
    rejected: int


class Ledger:
    """Counts stored and rejected uplinks of this process; reads the totals of all processes."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._ledger = mongo.database["ledger"]
        self._free: list[str] = []
        self.waiting: Sequence[range] = [range(2**63 - 1)]
        """Sequences that may still be delivered, by partition. Pages forget other sequences."""
        self.writes = 0
        """Transactions of this process that counted messages."""

    async def write_and_count(
        self,
        write: Callable[[Session], Awaitable[bool]],
        *,
        stored: Collection[Uplink] = (),
        rejected: Collection[Uplink] = (),
    ) -> bool:
        """Run `write` and, if it returns True, count uplinks in the same transaction.

        Return the result of `write`, which uses collections of `Mongo.direct`.
        """
        page = self._free.pop() if self._free else uuid4().hex

        async def write_with_counts(session: Session) -> bool:
            if not await write(session):
                return False
            if stored or rejected:
                changes = [{"$set": self._build_count_fields(stored, rejected)}]
                await self._mongo.direct["ledger"].update_one(
                    {"_id": page}, changes, upsert=True, session=session
                )
            return True

        try:
            return await self._mongo.transaction(write_with_counts, direct=True)
        finally:
            self._free.append(page)
            self.writes += 1

    def _build_count_fields(
        self, stored: Collection[Uplink], rejected: Collection[Uplink]
    ) -> dict[str, Any]:
        """Return the fields of a page with more counted uplinks, as expressions of an update."""
        counted = {"$ifNull": ["$seen", []]}
        last = "$$this.last"
        may_be_delivered = [
            {"$and": [{"$gte": [last, state.start]}, {"$lt": [last, state.stop]}]}
            for state in self.waiting
        ]
        kept_sequences = {"$filter": {"input": counted, "cond": {"$or": may_be_delivered}}}
        return {
            "stored": {"$add": [{"$ifNull": ["$stored", 0]}, len(stored)]},
            "rejected": {"$add": [{"$ifNull": ["$rejected", 0]}, len(rejected)]},
            "at": "$$NOW",
            "seen": {"$concatArrays": [kept_sequences, [_pack_sequences([*stored, *rejected])]]},
        }

    async def find_counted_sequences(self, uplinks: Sequence[Uplink]) -> set[int]:
        """Return the sequences of the uplinks that were counted."""
        if not uplinks:
            return set()
        received_times = {uplink.sequence: uplink.received for uplink in uplinks}
        sequences: set[int] = set()
        query = {"seen.last": {"$gte": min(received_times)}}
        async for page in self._ledger.find(query, {"seen": 1}):
            for packed in page["seen"]:
                if packed["last"] >= min(received_times) and packed["first"] <= max(received_times):
                    sequences |= {
                        key
                        for key in received_times.keys() & _unpack_sequences(packed)
                        if packed["from"] <= received_times[key] <= packed["to"]
                    }
        return sequences

    async def merge_old_pages(self) -> None:
        """Add old pages to the page `TOTALS_PAGE_ID` and delete them.

        Pages whose messages may be delivered again are kept.
        """
        old = {
            "_id": {"$ne": TOTALS_PAGE_ID},
            "at": {"$not": {"$gt": datetime.now(UTC) - MIN_MERGED_PAGE_AGE}},
            "$nor": [
                {"seen": {"$elemMatch": {"last": {"$gte": state.start, "$lt": state.stop}}}}
                for state in self.waiting
            ],
        }

        async def merge_pages(session: Session) -> int:
            cursor = self._ledger.find(old, limit=PAGES_PER_MERGE, session=session)
            pages: list[dict[str, Any]] = await cursor.to_list(None)
            if pages:
                merged = {"_id": {"$in": [page["_id"] for page in pages]}}
                await self._ledger.delete_many(merged, session=session)
                sums = {name: sum(page[name] for page in pages) for name in ("stored", "rejected")}
                await self._ledger.update_one(
                    {"_id": TOTALS_PAGE_ID}, {"$inc": sums}, upsert=True, session=session
                )
            return len(pages)

        while await self._mongo.transaction(merge_pages) == PAGES_PER_MERGE:
            pass

    async def totals(self) -> LedgerTotals:
        """Return the totals of all processes, including ended ones."""
        pipeline = [
            {
                "$group": {
                    "_id": None,
                    "stored": {"$sum": "$stored"},
                    "rejected": {"$sum": "$rejected"},
                }
            }
        ]
        for row in await (await self._ledger.aggregate(pipeline)).to_list(1):
            return LedgerTotals(row["stored"], row["rejected"])
        return LedgerTotals(0, 0)


def _pack_sequences(uplinks: Sequence[Uplink]) -> dict[str, Any]:
    """Return the sequences and times of uplinks in compact form, for `_unpack_sequences`."""
    numbers = sorted({uplink.sequence for uplink in uplinks})
    steps = array("Q", (after - before for before, after in pairwise(numbers)))
    times = [uplink.received for uplink in uplinks]
    return {
        "first": numbers[0],
        "last": numbers[-1],
        "from": min(times),
        "to": max(times),
        "steps": zlib.compress(steps.tobytes(), 1),
    }


def _unpack_sequences(packed: dict[str, Any]) -> set[int]:
    steps = array("Q")
    steps.frombytes(zlib.decompress(packed["steps"]))
    return set(accumulate(steps, initial=packed["first"]))


READ_SECONDS, IDLE_PERIOD_SECONDS = 1.0, 3.0
"""Seconds between two readings: usually, and while no message arrives."""
STUCK_SECONDS = 30.0
"""Ingest is not ready if messages wait and none was handled for this many seconds."""


@dataclass
class UplinkCounts:
    """Counts of messages since installation, and the messages that wait now."""

    accepted: int = 0
    stored: int = 0
    rejected: int = 0
    waiting: int = 0


class UplinkMetrics:
    """Reads stream and ledger periodically; `/metrics` shows the last reading."""

    def __init__(self, bus: Bus, streams: Sequence[str], ledger: Ledger) -> None:
        self._bus = bus
        self._streams = streams
        self._ledger = ledger
        self._last = UplinkCounts()
        self._states: dict[str, StreamContent] = {}
        """The states of the streams at the last reading."""
        self._readings, self._writes = 0, -1
        self._read_at = self._stored_at = self._moved_at = time.monotonic()
        meter = metrics.get_meter("thingway")
        for name, text in (
            ("stored", "Messages of devices that were stored"),
            ("rejected", "Messages of devices that were refused and are in DEAD"),
        ):
            meter.create_observable_counter(
                f"thingway_uplink_{name}", [self._observer(name)], description=text
            )
        for name, text in (
            ("accepted", "Messages of devices that were accepted: stored, rejected or waiting"),
            ("waiting", "Messages of devices that wait to be stored (consumer lag)"),
        ):
            meter.create_observable_gauge(
                f"thingway_uplink_{name}", [self._observer(name)], description=text
            )
        meter.create_observable_counter(
            "thingway_uplink_readings",
            [lambda _: [Observation(self._readings)]],
            description="Times that this process has read the counts above",
        )

    def _observer(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        """Return a callback that observes nothing before the first reading.

        After 0, the totals would look like an increase.
        """

        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(getattr(self._last, name))] if self._readings else []

        return observe

    async def run(self) -> None:
        """Read the counts periodically."""
        await repeat(self._read, READ_SECONDS, "metrics of UPLINK")

    async def _read(self) -> None:
        """Read the counts; every `IDLE_PERIOD_SECONDS` while nothing is counted and none wait.

        The ledger stays the same while all streams do and are empty.
        """
        writes, rested = (
            self._ledger.writes,
            time.monotonic() - self._read_at >= IDLE_PERIOD_SECONDS,
        )
        if writes == self._writes and not self._last.waiting and not rested:
            return
        states = await _read_states(self._bus, self._streams)
        if states != self._states or self._last.waiting:
            self._record(await _count_uplinks(states, self._ledger))
        else:
            self._record(self._last)
        self._states, self._writes = states, writes

    def _record(self, counts: UplinkCounts) -> None:
        now = self._read_at = time.monotonic()
        self._readings += 1
        if (counts.stored, counts.rejected) != (self._last.stored, self._last.rejected):
            self._stored_at = self._moved_at = now
        if not counts.waiting:
            self._moved_at = now
        self._last = counts

    async def check(self) -> str:
        """Return how many messages wait and when ingest last handled one, as text.

        The counts include all ingest processes. Raises `Unavailable` when messages wait and none
        was handled for `STUCK_SECONDS` seconds, or when the counts were not read for as long.
        """
        now, waiting = time.monotonic(), self._last.waiting
        if now - self._read_at > STUCK_SECONDS:
            raise Unavailable(f"the counts were last read {now - self._read_at:.0f} s ago")
        if now - self._moved_at > STUCK_SECONDS:
            idle = f"none was stored for {now - self._moved_at:.0f} s"
            raise Unavailable(f"{waiting} messages wait, and {idle}")
        return f"{waiting} messages wait, the last was stored {now - self._stored_at:.0f} s ago"


async def read_uplink_counts(bus: Bus, streams: Sequence[str], ledger: Ledger) -> UplinkCounts:
    """Return the counts of the streams and, read after these, of the ledger."""
    return await _count_uplinks(await _read_states(bus, streams), ledger)


async def _read_states(bus: Bus, streams: Sequence[str]) -> dict[str, StreamContent]:
    return {name: (await read_stream(bus, name)).state for name in streams}


async def _count_uplinks(states: dict[str, StreamContent], ledger: Ledger) -> UplinkCounts:
    ledger.waiting = [
        range(global_sequence(name, state.first_seq), global_sequence(name, 2**SEQUENCE_BITS - 1))
        for name, state in states.items()
    ]
    totals = await ledger.totals()
    waiting = sum(state.messages for state in states.values())
    handled = totals.stored + totals.rejected
    return UplinkCounts(handled + waiting, totals.stored, totals.rejected, waiting)
