"""Patterns that a socket follows, and what waits for a slow one."""

import asyncio
import json

import pytest

from libs.common.changes import Changed, ChangedThing
from libs.common.identity import Kind, Principal
from libs.common.identity.grants import ALL
from services.management.live.following import MOST_BYTES, MOST_CHANGES, ChangeQueue, Pattern
from services.management.live.frames import BadFrame, Follow, Value, read_frame
from services.management.live.subscriber import Subscriber

KEY = "direct.device.S1.temperature"
THING = ChangedThing(7, "direct.device.S1", "direct", True, 4, "TH", "Roof north")


def change(value: object = 21.5, *, thing: ChangedThing = THING, is_event: bool = False) -> Changed:
    return Changed("e1", "t", thing, 1234, {KEY: value}, is_event)


def frame(**payload: object) -> str:
    return json.dumps({"event_type": "Subscribe", "payload": payload or None})


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (Pattern(scope="TENANT"), True),
        (Pattern(scope="GROUP", id="4"), True),
        (Pattern(scope="GROUP", id=5), False),
        (Pattern(scope="DEVICE", id=7), True),
        (Pattern(scope="DEVICE", id=4), False),
        (Pattern(scope="TENANT", type="PROPERTY"), True),
        (Pattern(scope="TENANT", type="EVENT"), False),
    ],
)
def test_pattern_covers_a_change(pattern: Pattern, fits: bool) -> None:
    """The scope is the tenant, a group or a device; a type leaves the other one out."""
    assert pattern.covers(change()) is fits


def test_groups_and_devices_are_not_integrations() -> None:
    """A custom entity or an integration with the same number does not fit."""
    thing = ChangedThing(7, "system.integration", "system", False)
    assert not Pattern(scope="DEVICE", id=7).covers(change(thing=thing))
    assert Pattern(scope="TENANT").covers(change(thing=thing))


@pytest.mark.parametrize(
    ("keyword", "fits"), [("", True), ("TEMP", True), ("roof N", True), ("south", False)]
)
def test_keyword_is_part_of_the_key_or_the_name(keyword: str, fits: bool) -> None:
    """Case does not matter."""
    assert Pattern(scope="TENANT", keyword=keyword).has_keyword(change(), KEY) is fits


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (frame(scope="ALL"), "scope"),
        (frame(scope="GROUP"), "payload.id: must be an id"),
        (frame(scope="DEVICE", id="-1"), "payload.id: must be an id"),
        (frame(scope="DEVICE", id=1.0), "payload.id: must be an id"),
        (frame(scope="TENANT", id="1"), "payload.id: is not for TENANT"),
        (frame(scope="TENANT", keyword="x" * 256), "keyword"),
        ('{"event_type":"Subscribe","payload":[]}', "object"),
    ],
)
def test_bad_patterns_are_refused(text: str, named: str) -> None:
    """The text names what is wrong."""
    with pytest.raises(BadFrame, match=named):
        read_frame(text)


def test_a_pattern_ends_with_null() -> None:
    """The frame is kept, to be sent back."""
    assert read_frame(frame()) == Follow(None, frame())


def test_one_frame_has_everything_that_waits() -> None:
    """Each change with its thing, its time and its values."""
    queue = ChangeQueue()
    queue.add(change(1), {KEY: 1})
    queue.add(change({"level": 3}, is_event=True), {KEY: {"level": 3}})

    told = json.loads(queue.take() or "")

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
    assert queue.take() is None


@pytest.mark.parametrize(
    ("text", "kept"), [("", MOST_CHANGES), ("x" * (MOST_BYTES // 4), 3), ("x" * MOST_BYTES, 1)]
)
def test_the_oldest_are_skipped_and_counted(text: str, kept: int) -> None:
    """No more than so many changes and bytes wait; one that alone is larger is kept."""
    queue = ChangeQueue()
    for _ in range(MOST_CHANGES + 5):
        queue.add(change(text), {KEY: text})
    told = json.loads(queue.take() or "")["payload"]
    assert len(told["changes"]) == kept
    assert told["skipped"] == MOST_CHANGES + 5 - kept


async def test_another_pattern_forgets_what_waits_for_the_one_before() -> None:
    """No change of the old pattern comes after the new one holds."""
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    subscriber = Subscriber(Principal(Kind.USER, "t", "1"), "", ALL, send, lambda *_: None)
    subscriber.follow(Pattern(scope="TENANT"))
    subscriber.push_change(change())
    subscriber.follow(Pattern(scope="DEVICE", id=8))
    subscriber.push_change(change())
    await asyncio.sleep(0)
    assert sent == []
    subscriber.push({KEY: Value(1, 1)})
    subscriber.follow(Pattern(scope="DEVICE", id=7))
    subscriber.push_change(change())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sorted(json.loads(text)["event_type"] for text in sent) == ["Changes", "Exchange"]
    subscriber.stop()
