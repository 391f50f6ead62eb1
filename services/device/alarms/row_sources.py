"""Readings for evaluations: from history, and messages that are not stored yet.

An evaluation waits for earlier messages of its device. `UPLINK` and its partitions keep a message
until it is stored: after a crash of an ingest process, newer reports may be stored before the
messages that it had received.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.streams import UPLINK, UPLINK_STREAM_NAMES
from libs.common.bus.subjects import partitioned_uplink_subject, uplink_subject
from libs.common.clock import now_ms, to_ms
from libs.common.errors import Unavailable
from libs.common.store.mongo import Document, Mongo
from services.device.alarms.condition_checks import truncate_for_check, value_at
from services.device.alarms.decision import TimedValue
from services.device.alarms.model import EventCondition, ValueCondition
from services.device.telemetry.batch_store import DELAY_FIELD
from services.device.telemetry.device_events import EVENTS_COLLECTION
from services.device.telemetry.partitions import (
    DAY_MS,
    KEY_FORMAT,
    MAX_KEY_PART,
    collection_name,
    history_key,
    partition_number,
)
from services.device.telemetry.uplink import MQTT_PREFIX, SEQUENCE_BITS, global_sequence

ROWS_PER_READ = 5000
"""Maximum rows of one read of history."""
HistoryCondition = ValueCondition | EventCondition
"""A condition whose check needs stored values or events."""
EVENT_ID_FIELD = "e"
"""Field of the event id in its document."""


class StoredReport(NamedTuple):
    """A report or an event of a device, ordered by `ts` and `sequence`."""

    ts: int
    sequence: int
    arrival: int
    values: dict[str, Any]
    """Values by field of history, for example `p.temperature`."""


class HistoryReader:
    """Reads stored values and events of devices."""

    def __init__(self, mongo: Mongo, retention_days: int) -> None:
        self._database = mongo.direct
        self._kept = retention_days * DAY_MS

    async def read_since(
        self, history_fields: Collection[str], device_id: int, start: int, sequence: int
    ) -> list[StoredReport]:
        """Return at most `ROWS_PER_READ` rows after a time (ms) and sequence, oldest first.

        `history_fields` are results of `history_field`; a row has at least one of them.
        """
        now = now_ms()
        if start < now - self._kept:
            start, sequence = now - self._kept, 0
        bounds = {
            "$gt": history_key(device_id, start, sequence),
            "$lte": history_key(device_id, MAX_KEY_PART, MAX_KEY_PART),
        }
        query: Document = {
            "_id": bounds,
            "$or": [{name: {"$exists": True}} for name in history_fields],
        }
        fields = [
            name
            for name in history_fields
            if not any(parent in history_fields for parent in _parent_paths(name))
        ]
        names = (
            [EVENTS_COLLECTION]
            if EVENT_ID_FIELD in history_fields
            else map(collection_name, _partition_range(start, now))
        )
        paths = {name: tuple(name.split(".")) for name in history_fields}
        rows = list[StoredReport]()
        for name in names:
            cursor = self._database[name].find(
                query, [*fields, DELAY_FIELD], sort=[("_id", 1)], limit=ROWS_PER_READ - len(rows)
            )
            rows += [_to_stored_report(document, paths) async for document in cursor]
            if len(rows) >= ROWS_PER_READ:
                break
        return rows


def history_field(condition: HistoryCondition) -> str:
    """Return the field of history with the value or event id that a condition needs."""
    return EVENT_ID_FIELD if isinstance(condition, EventCondition) else f"p.{condition.property}"


def select_values(condition: HistoryCondition, stored: Iterable[StoredReport]) -> list[TimedValue]:
    """Return the values of a condition from rows of history."""
    source = history_field(condition)
    rows = [
        TimedValue(report.ts, report.sequence, report.values[source], report.arrival)
        for report in stored
        if source in report.values
    ]
    if isinstance(condition, EventCondition):
        return [row for row in rows if row.value in (condition.event, condition.ended_by)]
    return rows


def merge_values(rows: Iterable[TimedValue], messages: Iterable[TimedValue]) -> list[TimedValue]:
    """Return rows of history and the readings of `messages` that history lacks, in order."""
    rows_by_key = {(row.ts, row.sequence): row for row in (*messages, *rows)}
    return [rows_by_key[key] for key in sorted(rows_by_key)]


def contains_all(rows: Sequence[TimedValue], messages: Iterable[TimedValue]) -> bool:
    """Return whether `rows` have all readings of `messages`; a device may store no history."""
    return all(_contains_row(rows, row) for row in messages)


def _contains_row(rows: Sequence[TimedValue], row: TimedValue) -> bool:
    at = bisect_left(rows, row[:2])
    return at < len(rows) and rows[at][:2] == row[:2]


def _parent_paths(path: str) -> list[str]:
    """Return the parent paths of a path. MongoDB rejects projections of a path and its parent."""
    return [path[:at] for at, letter in enumerate(path) if letter == "."]


def _partition_range(start: int, now: int) -> range:
    """Return the partitions of history from `start` on; a device's clock may be a day ahead."""
    return range(partition_number(start), partition_number(now + DAY_MS) + 1)


def _to_stored_report(document: Document, paths: Mapping[str, tuple[str, ...]]) -> StoredReport:
    _, ts, sequence = KEY_FORMAT.unpack(document["_id"])
    values = {
        source: truncate_for_check(value)
        for source, path in paths.items()
        if isinstance(value := value_at(document, path), (str, int, float))
    }
    return StoredReport(ts, sequence, ts + document.get(DELAY_FIELD, 0), values)


NOT_FOUND_CODE = 404
REQUEST_TIMEOUT_SECONDS = 5.0
"""Seconds until a request to read a message of a stream fails."""


class UnstoredMessage(NamedTuple):
    """A message that ingest has not acknowledged."""

    sequence: int
    """Sequence across all partitions."""
    received: int
    """When it was received, ms."""


class _StreamMessage(msgspec.Struct):
    seq: int
    time: datetime


class _StreamError(msgspec.Struct):
    code: int
    description: str = ""


class _GetMessageAnswer(msgspec.Struct):
    message: _StreamMessage | None = None
    error: _StreamError | None = None


_decode_answer = msgspec.json.Decoder(_GetMessageAnswer).decode


class UplinkReader:
    """Reads `UPLINK` and its partitions; one per process."""

    def __init__(self, bus: Bus, streams: Collection[str]) -> None:
        self._bus = bus
        self._streams = streams

    async def find_first_unstored(
        self, sn: str, after: int, stream_hints: Iterable[int], stored: Container[int]
    ) -> UnstoredMessage | None:
        """Return a device's oldest message after sequence `after` that is not in `stored`, or None.

        Only the streams of the sequences `stream_hints` are read, or all streams without hints.
        Raises `Unavailable`.
        """
        streams = {
            UPLINK_STREAM_NAMES[sequence >> SEQUENCE_BITS] for sequence in stream_hints if sequence
        } or self._streams
        messages = await asyncio.gather(
            *(
                self._find_first_in_stream(stream, subject, after, stored)
                for stream in streams
                for subject in _plain_and_mqtt_subjects(stream, sn)
            )
        )
        return min((message for message in messages if message is not None), default=None)

    async def _find_first_in_stream(
        self, stream: str, subject: str, after: int, stored: Container[int]
    ) -> UnstoredMessage | None:
        sequence = max(after - global_sequence(stream, 0), 0)
        while True:
            request = {"seq": sequence + 1, "next_by_subj": subject}
            answer = await self._get_message(stream, request)
            if answer is None:
                return None
            sequence = answer.seq
            if (position := global_sequence(stream, sequence)) not in stored:
                return UnstoredMessage(position, to_ms(answer.time))

    async def _get_message(self, stream: str, request: dict[str, object]) -> _StreamMessage | None:
        subject, body = f"$JS.API.STREAM.MSG.GET.{stream}", msgspec.json.encode(request)
        try:
            answer = _decode_answer(
                (await self._bus.client.request(subject, body, REQUEST_TIMEOUT_SECONDS)).data
            )
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"{stream} cannot be read: {error!r}") from error
        if answer.error is not None and answer.error.code != NOT_FOUND_CODE:
            raise Unavailable(f"{stream}: {answer.error.description}")
        return answer.message


def _plain_and_mqtt_subjects(stream: str, sn: str) -> tuple[str, str]:
    """Return the subjects of a device, plain and MQTT with QoS 1."""
    subject = (
        uplink_subject(sn, ">")
        if stream == UPLINK
        else partitioned_uplink_subject(sn, "*", UPLINK_STREAM_NAMES.index(stream) - 1)
    )
    return subject, MQTT_PREFIX + subject
