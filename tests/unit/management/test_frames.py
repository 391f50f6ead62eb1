"""Patterns that a socket follows, and what waits for a slow one."""

import json

import pytest

from libs.common.changes import ChangedThing, EntityChange
from services.management.live.frames import (
    MAX_WAITING_CHANGE_BYTES,
    MAX_WAITING_CHANGES,
    ChangeFilter,
    ChangeQueue,
    EncodedChange,
    FilterRequest,
    InvalidFrame,
    QueuedBytes,
    decode_frame,
)

KEY = "direct.device.S1.temperature"
THING = ChangedThing(7, "direct.device.S1", "direct", True, 4, "TH", "Roof north")


def change(
    value: object = 21.5, *, thing: ChangedThing = THING, is_event: bool = False
) -> EntityChange:
    return EntityChange("e1", "t", thing, 1234, {KEY: value}, is_event)


def encoded(value: object, *, is_event: bool = False) -> EncodedChange:
    return EncodedChange.encode(change(value, is_event=is_event), {KEY: value})


def frame(**payload: object) -> str:
    return json.dumps({"event_type": "Subscribe", "payload": payload or None})


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (ChangeFilter(scope="TENANT"), True),
        (ChangeFilter(scope="GROUP", id="4"), True),
        (ChangeFilter(scope="GROUP", id=5), False),
        (ChangeFilter(scope="DEVICE", id=7), True),
        (ChangeFilter(scope="DEVICE", id=4), False),
        (ChangeFilter(scope="TENANT", type="PROPERTY"), True),
        (ChangeFilter(scope="TENANT", type="EVENT"), False),
    ],
)
def test_pattern_covers_a_change(pattern: ChangeFilter, fits: bool) -> None:
    """The scope is the tenant, a group or a device; a type leaves the other one out."""
    assert pattern.matches_thing_and_type(change()) is fits


def test_groups_and_devices_are_not_integrations() -> None:
    """A custom entity or an integration with the same number does not fit."""
    thing = ChangedThing(7, "system.integration", "system", False)
    assert not ChangeFilter(scope="DEVICE", id=7).matches_thing_and_type(change(thing=thing))
    assert ChangeFilter(scope="TENANT").matches_thing_and_type(change(thing=thing))


@pytest.mark.parametrize(
    ("keyword", "fits"), [("", True), ("TEMP", True), ("roof N", True), ("south", False)]
)
def test_keyword_is_part_of_the_key_or_the_name(keyword: str, fits: bool) -> None:
    """Case does not matter."""
    pattern = ChangeFilter(scope="TENANT", keyword=keyword)
    assert pattern.select_values(change()) == ({KEY: 21.5} if fits else {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (frame(scope="ALL"), "scope"),
        (frame(scope="GROUP"), "payload.id: must be an id"),
        (frame(scope="DEVICE", id="-1"), "payload.id: must be an id"),
        (frame(scope="DEVICE", id=1.0), "payload.id: must be an id"),
        (frame(scope="TENANT", id="1"), "payload.id: must be absent for TENANT"),
        (frame(scope="TENANT", keyword="x" * 256), "keyword"),
        ('{"event_type":"Subscribe","payload":[]}', "object"),
    ],
)
def test_bad_patterns_are_refused(text: str, named: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(InvalidFrame, match=named):
        decode_frame(text)


def test_a_pattern_ends_with_null() -> None:
    """The frame is kept, to be sent back."""
    assert decode_frame(frame()) == FilterRequest(None, frame())


def test_one_frame_has_everything_that_waits() -> None:
    """Each change with its thing, its time and its values."""
    queue = ChangeQueue(QueuedBytes(MAX_WAITING_CHANGE_BYTES))
    queue.add_and_count_skipped(encoded(1))
    queue.add_and_count_skipped(encoded({"level": 3}, is_event=True))

    told = json.loads(queue.pop_frame() or "")

    device = {"thing_key": "direct.device.S1", "device_id": "7", "device_name": "Roof north"}
    assert told == {
        "event_type": "Changes",
        "payload": {
            "skipped": 0,
            "changes": [
                {"type": "PROPERTY", "timestamp": 1234, "values": {KEY: 1}, **device},
                {"type": "EVENT", "timestamp": 1234, "values": {KEY: {"level": 3}}, **device},
            ],
        },
    }
    assert queue.pop_frame() is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", MAX_WAITING_CHANGES),
        ("x" * (MAX_WAITING_CHANGE_BYTES // 4), 3),
        ("x" * MAX_WAITING_CHANGE_BYTES, 1),
    ],
)
def test_the_oldest_are_skipped_and_counted(text: str, kept: int) -> None:
    """No more than so many changes and bytes wait; one that alone is larger is kept."""
    queued = QueuedBytes(10 * MAX_WAITING_CHANGE_BYTES)
    queue = ChangeQueue(queued)
    for _ in range(MAX_WAITING_CHANGES + 5):
        queue.add_and_count_skipped(encoded(text))
    assert queued.size > 0
    told = json.loads(queue.pop_frame() or "")["payload"]
    assert len(told["changes"]) == kept
    assert told["skipped"] == MAX_WAITING_CHANGES + 5 - kept
    assert queued.size == 0
