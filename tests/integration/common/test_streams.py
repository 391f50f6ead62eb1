"""Streams: their limits, bounds of earlier versions, and metrics."""

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
from nats.js.api import ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from libs.common.bus import EVENTS, STREAM_CONFIGS, UPLINK, Bus, OutgoingMessage
from libs.common.bus.connection import publish_all
from libs.common.bus.streams import RETAINED, add_missing_stream_settings, create_missing_streams
from libs.common.errors import TooManyRequests
from libs.common.store_metrics import StreamMetrics, read_backlogs
from tests.integration.common.messages import events


async def test_streams_that_are_there_are_left_alone(bus: Bus):
    """Several processes may make the streams at the same time."""
    await asyncio.gather(*(create_missing_streams(bus.js, 1) for _ in range(3)))


async def test_streams_of_an_earlier_version_get_missing_bounds(bus):
    """Their messages and the limits that an operator has set stay."""
    for name in STREAM_CONFIGS:
        with contextlib.suppress(NotFoundError):
            await bus.js.delete_stream(name)
    for name, config in STREAM_CONFIGS.items():
        old = config.evolve(
            max_msgs_per_subject=-1, discard_new_per_subject=False, max_age=None, max_msgs=-1
        )
        await bus.js.add_stream(old.evolve(max_bytes=1024**2) if name == UPLINK else old)
    await bus.js.publish("thing.old.up.report", b"{}")

    await add_missing_stream_settings(bus.js, 1)

    for name, config in STREAM_CONFIGS.items():
        held = await bus.js.stream_info(name)
        assert held.config.discard_new_per_subject == config.discard_new_per_subject
        assert (held.config.max_age or 0) == (config.max_age or 0)
        assert held.config.max_bytes == (1024**2 if name == UPLINK else config.max_bytes or -1)
    assert (await bus.js.stream_info(UPLINK)).state.messages == 1
    await bus.js.delete_stream(UPLINK)
    await create_missing_streams(bus.js, 1)


async def test_one_subject_that_is_full_refuses_its_own_messages_only(bus):
    """A device with waiting reports gets an error; those of another are stored, also in batches."""
    held = (await bus.js.stream_info(UPLINK)).config
    await bus.js.update_stream(held.evolve(max_msgs_per_subject=2))
    try:
        await publish_all(bus, [OutgoingMessage("thing.full.up.report", b"{}")] * 2)
        with pytest.raises(TooManyRequests):
            await bus.publish([OutgoingMessage("thing.full.up.report", b"{}")])
        with pytest.raises(TooManyRequests):
            await publish_all(bus, [OutgoingMessage("thing.full.up.report", b"{}")] * 2)
        await publish_all(bus, [OutgoingMessage("thing.other.up.report", b"{}")] * 2)
    finally:
        await bus.js.update_stream(held)
        await bus.js.purge_stream(UPLINK)


async def test_the_backlog_of_a_service_that_does_not_run_is_measured(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that no service has created yet is not shown."""
    shown: dict[str, int] = {}

    def show(value: int, labels: dict[str, str]) -> None:
        shown[labels["consumer"]] = value

    monkeypatch.setattr("libs.common.bus.consumer._waiting_gauge.set", show)
    await bus.js.add_consumer(EVENTS, ConsumerConfig(durable_name="workflow"))
    try:
        before = (await bus.js.consumer_info(EVENTS, "workflow")).num_pending or 0
        await publish_all(bus, events(1, 2))
        await read_backlogs(bus)
    finally:
        await bus.js.delete_consumer(EVENTS, "workflow")
    assert shown == {"workflow": before + 2}


async def test_a_stream_that_was_created_again_is_logged_and_recorded(
    bus: Bus, database: str, mongo_of, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by a process that starts later; a new stream is only recorded."""
    records = mongo_of(database).database
    config = StreamConfig(name="AGAIN", subjects=["again.>"])

    async def measure() -> dict[str, Any] | None:
        await StreamMetrics(bus, ["AGAIN"], records)._read()
        return await records["streams"].find_one({"_id": "AGAIN"})

    try:
        await bus.js.add_stream(config)
        first = await measure()
        assert first is not None
        assert "recreated" not in first
        await bus.js.delete_stream("AGAIN")
        await bus.js.add_stream(config)
        second = await measure()
        assert second is not None
        assert second["recreated"] > 0
        assert await measure() == second
    finally:
        await bus.js.delete_stream("AGAIN")
    assert [line.levelname for line in caplog.records if "AGAIN was deleted" in line.message] == [
        "ERROR"
    ]


async def test_a_stream_that_nats_server_created_gets_its_limits(
    bus: Bus, database: str, mongo_of, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restart, nats-server creates the stream of retained messages without limits."""
    measured = StreamMetrics(
        bus,
        [RETAINED],
        mongo_of(database).database,
        partial(add_missing_stream_settings, bus.js, 1),
    )
    await create_missing_streams(bus.js, 1)
    await measured._read()
    await bus.js.delete_stream(RETAINED)
    await bus.js.add_stream(name=RETAINED, subjects=["$MQTT.rmsgs.>"])
    await measured._read()
    held = (await bus.js.stream_info(RETAINED)).config
    assert (held.max_msgs, held.max_age) == (16, 3600)
    assert "was deleted" not in caplog.text
