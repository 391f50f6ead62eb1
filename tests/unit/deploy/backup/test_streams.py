"""Snapshots of streams, against a client that answers as nats-server does."""

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest

from deploy.backup import streams
from deploy.backup.installation import _read_positions, _write_stream_snapshots
from deploy.backup.records import ArchiveRecord, StreamEnd, StreamHead, StreamPosition
from deploy.backup.streams import (
    BACKED_UP_STREAMS,
    FILLER_SUBJECT_BY_STREAM,
    compare_stream,
    snapshot_stream,
)
from deploy.platform.errors import CommandError
from libs.common.bus import EVENTS, Bus
from libs.common.bus.streams import ANY_EVENT, UPLINK, UPLINK_PARTITION_CONFIGS, UPLINK_STREAM_NAMES

BUS = cast("Bus", Mock())
MISSING = {"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}


async def test_no_snapshot_of_a_missing_stream_is_requested() -> None:
    """A cluster never answers such a request."""
    request = AsyncMock(return_value=SimpleNamespace(data=json.dumps(MISSING).encode()))
    client = Mock(new_inbox=lambda: "inbox", subscribe=AsyncMock(), request=request)
    client.subscribe.return_value.unsubscribe = AsyncMock()
    assert [piece async for piece in snapshot_stream(client, "EVENTS_0")] == []
    assert [call.args[0] for call in request.call_args_list] == ["$JS.API.STREAM.INFO.EVENTS_0"]


def test_every_stream_with_reports_is_copied_and_advanced() -> None:
    """They are the last, and `UPLINK` is the first of them: it determines the moment."""
    assert BACKED_UP_STREAMS[-len(UPLINK_STREAM_NAMES) :] == UPLINK_STREAM_NAMES
    assert set(UPLINK_STREAM_NAMES) <= FILLER_SUBJECT_BY_STREAM.keys()


@pytest.mark.parametrize("name", UPLINK_PARTITION_CONFIGS)
def test_a_partition_stores_its_filler(name: str) -> None:
    """The stream has its subject."""
    (subject, _) = UPLINK_PARTITION_CONFIGS[name].subjects or []
    assert FILLER_SUBJECT_BY_STREAM[name].startswith(subject.removesuffix("*.*"))


async def test_the_moment_precedes_every_snapshot_of_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report that was acknowledged before is in a snapshot, or MongoDB has it."""
    clock: list[str] = []

    async def snapshot(_: object, name: str) -> AsyncIterator[StreamHead]:
        clock.append(name)
        yield StreamHead(name, {}, {})

    monkeypatch.setattr(streams, "snapshot_stream", snapshot)
    monkeypatch.setattr(streams, "snapshot_without_write_only", lambda *_: snapshot(_, "MQTT"))
    monkeypatch.setattr("deploy.backup.installation.now_ms", lambda: len(clock))
    written: list[ArchiveRecord] = []
    heads, at = await _write_stream_snapshots(
        BUS, AsyncMock(side_effect=written.append), AsyncMock()
    )
    assert clock[at:] == [*UPLINK_STREAM_NAMES]
    assert (len(heads), written.count(StreamEnd())) == (
        len(BACKED_UP_STREAMS),
        len(BACKED_UP_STREAMS),
    )


async def test_a_stream_that_is_created_during_a_backup_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MongoDB may have its messages, and a new stream would use their sequences again."""
    at = StreamPosition(1, 1, 1)
    existing = {EVENTS: at, UPLINK: at}
    monkeypatch.setattr(
        streams, "read_position", AsyncMock(side_effect=lambda _, n: existing.get(n))
    )
    heads = {name: StreamHead(name, {"subjects": [ANY_EVENT]}, {}) for name in existing}
    assert await _read_positions(BUS, heads) == existing
    existing["UPLINK_3"] = at
    with pytest.raises(CommandError, match="UPLINK_3 was created during the backup"):
        await _read_positions(BUS, heads)


@pytest.mark.parametrize(
    ("name", "found", "is_equal"),
    [
        ("UPLINK_1", StreamPosition(9, 1, 2), True),
        ("UPLINK_1", StreamPosition(8, 1, 8), False),
        ("EVENTS_1", StreamPosition(9, 3, 6), True),
        ("EVENTS_1", StreamPosition(9, 1, 7), False),
    ],
)
async def test_a_restored_stream_is_compared(
    monkeypatch: pytest.MonkeyPatch, name: str, found: StreamPosition, is_equal: bool
) -> None:
    """Of reports only the sequence counts, because they are handled during a backup."""
    monkeypatch.setattr(streams, "require_position", AsyncMock(return_value=found))
    expected = StreamPosition(9, 1, 8)
    if is_equal:
        await compare_stream(BUS, name, expected)
        return
    with pytest.raises(CommandError, match=f"{name} has"):
        await compare_stream(BUS, name, expected)
