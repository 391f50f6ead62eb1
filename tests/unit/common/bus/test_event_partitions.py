"""Where events are stored: the partition of a subject, and its publishers. Streams of reports."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.streams import (
    EVENT_CONSUMERS,
    EVENTS,
    UPLINK,
    UPLINK_PARTITION_CONFIGS,
    EventPartitions,
    event_partition_config,
    find_uplink_streams,
    set_event_partitions,
)
from libs.common.bus.subjects import (
    event_partition_number,
    partition_prefix,
    partitioned_event_subject,
)

ROOT = Path(__file__).parents[4]
DEVICE = ("device.5.reported", "device.5.online", "service.5.called", "alarm.5.raised", "look.5")


class FakeStreams:
    """The streams of JetStream."""

    def __init__(self, *configs: StreamConfig) -> None:
        self.configs = {config.name: config for config in configs}
        self.changes: list[str | None] = []

    async def stream_info(self, name: str) -> Any:
        """Return the configuration of a stream."""
        if name not in self.configs:
            raise NotFoundError
        return SimpleNamespace(config=self.configs[name])

    async def update_stream(self, config: StreamConfig) -> None:
        """Replace the configuration of a stream."""
        self.configs[config.name] = config
        self.changes.append(config.name)

    add_stream = update_stream


@pytest.mark.parametrize("partitions", [2, 3, 16])
def test_all_events_of_a_device_have_one_partition(partitions: int) -> None:
    found = {event_partition_number(f"event.t1.{one}", partitions) for one in DEVICE}

    assert len(found) == 1
    assert found < set(range(partitions))


def test_devices_are_spread_over_all_partitions() -> None:
    numbers = [event_partition_number(f"event.t1.device.{one}.reported", 4) for one in range(4000)]

    assert all(900 < numbers.count(partition) < 1100 for partition in range(4))


@pytest.mark.parametrize("subject", ["event.t1.auth.user.deleted", "event.t1.x", "event.restored"])
def test_other_events_have_a_partition_too(subject: str) -> None:
    placed = partitioned_event_subject(subject, 2)

    assert placed == f"events.2.{event_partition_number(subject, 2)}.{subject}"
    assert partition_prefix(placed) == placed.removesuffix(f".{subject}")


def test_an_unused_partition_accepts_and_repeats_no_events() -> None:
    config = event_partition_config(2, 2)

    assert config.subjects == ["events.restored.EVENTS_2"]
    assert (config.republish, config.subject_transform) == (None, None)


async def test_only_events_are_published_in_partitions() -> None:
    bus = Bus(cast("Any", SimpleNamespace()), cast("Any", None))
    bus._partitions = EventPartitions(2, 2)
    subjects = ["event.t1.device.5.reported", "thing.S.up.report", "dead.uplink.S"]

    placed = await bus.address_partitions([OutgoingMessage(subject, b"") for subject in subjects])

    assert [one.subject for one in placed] == [
        partitioned_event_subject(subjects[0], 2),
        *subjects[1:],
    ]
    assert await bus.address_partitions(placed) == placed


async def test_partitions_exist_before_publishers_use_them_and_close_before_events_return() -> None:
    streams = FakeStreams(StreamConfig(name=EVENTS, subjects=["event.>"]))
    js: Any = streams

    await set_event_partitions(js, 1, 2)
    await set_event_partitions(js, 1, 2)
    assert streams.changes == ["EVENTS_0", "EVENTS_1", EVENTS]
    assert streams.configs[EVENTS].subjects == ["events.restored.EVENTS"]

    await set_event_partitions(js, 1, 1)
    assert streams.changes[3:] == ["EVENTS_0", "EVENTS_1", EVENTS]
    assert streams.configs[EVENTS].subjects == ["event.>"]
    assert streams.configs["EVENTS_1"].republish is None


async def test_partitions_are_read_again_only_when_they_are_old() -> None:
    metadata = {"partitions": "3", "created-partitions": "4"}
    js: Any = FakeStreams(StreamConfig(name=EVENTS, metadata=metadata))
    bus = Bus(cast("Any", None), js)

    first = await bus.read_partitions(10)
    js.configs.clear()

    assert await bus.read_partitions(10) is first
    assert first.streams == [EVENTS, "EVENTS_0", "EVENTS_1", "EVENTS_2", "EVENTS_3"]


@pytest.mark.parametrize(("partitions", "more"), [(1, []), (2, ["UPLINK_0", "UPLINK_1"])])
async def test_reports_may_wait_in_former_partitions(partitions: int, more: list[str]) -> None:
    """They are listed with those that are in use, which may not exist yet."""
    js: Any = FakeStreams(UPLINK_PARTITION_CONFIGS["UPLINK_5"])

    assert await find_uplink_streams(js, partitions) == [UPLINK, *more, "UPLINK_5"]


def test_every_durable_reader_of_events_is_measured() -> None:
    """`device` reads the backlog of each consumer whose name a service fixes."""
    sources = [path.read_text() for path in (ROOT / "services").rglob("*.py")]
    found = {
        name
        for text in sources
        if "BatchConsumer" in text
        for name in re.findall(r'(?:durable=|^CONSUMER_NAME = )"([\w-]+)"', text, re.MULTILINE)
    }
    assert found - {"ingest"} == set(EVENT_CONSUMERS)
