"""Events in partitions by device: every reader gets each event once, in order per device."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import NotFoundError

from deploy.backup.records import StreamHead, StreamMessage
from deploy.backup.streams import (
    StreamRestore,
    advance_sequence,
    is_partition_copy,
    publish_missing_messages,
    read_messages,
    snapshot_stream,
)
from libs.common.bus import BatchConsumer, Bus, OutgoingMessage, consumer, event_tenant, publish_all
from libs.common.bus.publishing import acknowledge
from libs.common.bus.stored_messages import count_messages, read_newest_events
from libs.common.bus.streams import EVENTS, create_missing_streams, read_event_partitions
from libs.common.bus.subjects import device_event
from libs.common.errors import Unavailable
from libs.common.jobs import cancel_and_wait
from services.auth.applications.event_partitions import EventStreamUpdater
from tests.integration.nats_door import WAIT, Server, nats_door

DEVICES = 8


@pytest_asyncio.fixture
async def server(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setattr(consumer, "BACKLOG_INTERVAL_SECONDS", 0.2)
    async with nats_door(tmp_path) as running:
        yield running


@contextlib.asynccontextmanager
async def bus_of(server: Server, user: str) -> AsyncIterator[Bus]:
    async with server.service(user) as client:
        yield Bus(client, client.jetstream())


async def set_partitions(server: Server, number: int, *tenants: str) -> None:
    """Do what the lease holder of `auth` does for tenants with applications that read events."""

    async def list_event_reading_tenants() -> list[str]:
        return list(tenants)

    applications: Any = SimpleNamespace(list_event_reading_tenants=list_event_reading_tenants)
    async with bus_of(server, "auth") as bus:
        await EventStreamUpdater(bus, applications, number).update_streams()


async def publish(bus: Bus, first: int, number: int = 80, tenant: str = "t1") -> None:
    """Publish numbered events of all devices; again when the partitions have changed."""
    events = [
        OutgoingMessage(device_event(tenant, one % DEVICES, "reported"), b"%d" % one, f"e{one}")
        for one in range(first, first + number)
    ]
    for send, some in ((bus.publish, events[:40]), (partial(publish_all, bus), events[40:])):
        try:
            await send(some)
        except Unavailable:
            await send(some)


class Reader:
    """A durable reader of a service."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def wait_for(self, number: int) -> list[int]:
        """Return the numbers after `number` events have arrived; others follow in this time."""
        async with asyncio.timeout(20):
            while len(self.numbers) < number:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        return self.numbers


@contextlib.asynccontextmanager
async def reading(server: Server, name: str, **options: Any) -> AsyncIterator[Reader]:
    """Read events as `workflow` does."""
    reader = Reader()
    async with bus_of(server, "workflow") as bus:

        async def handle(messages: list[Msg]) -> None:
            reader.numbers += [int(message.data) for message in messages]
            await acknowledge(bus.client, messages)

        task = asyncio.ensure_future(
            BatchConsumer(
                bus=bus,
                stream=EVENTS,
                durable=name,
                handle=handle,
                lane=event_tenant,
                subjects=("event.*.device.*.reported",),
                **options,
            ).run()
        )
        try:
            while not await _exists(bus, name):
                await asyncio.sleep(0.02)
            yield reader
        finally:
            await cancel_and_wait(task)


async def _exists(bus: Bus, name: str) -> bool:
    try:
        await bus.js.consumer_info(EVENTS, name)
    except NotFoundError:
        return False
    return True


def in_order(numbers: list[int]) -> bool:
    """Return whether the events of each device are in order."""
    devices: dict[int, list[int]] = {}
    for number in numbers:
        devices.setdefault(number % DEVICES, []).append(number)
    return all(some == sorted(some) for some in devices.values())


@pytest.mark.parametrize("options", [{"from_now": True}, {}, {"ephemeral": True}])
async def test_readers_get_each_event_once_while_partitions_change(
    server: Server, options: dict[str, Any]
) -> None:
    name = "live-1" if "ephemeral" in options else "flows"
    async with reading(server, name, **options) as reader, bus_of(server, "device") as device:
        first = 0
        for partitions in (1, 3, 2, 1):
            await set_partitions(server, partitions, "t1")
            await publish(device, first)
            first += 80
            found = await reader.wait_for(first)

            assert sorted(found) == list(range(first))
            assert in_order(found)
        states = [(await device.js.stream_info(f"EVENTS_{n}")).state for n in range(3)]
        assert all(0 < state.messages < 160 for state in states)


async def test_an_application_reads_everything_by_its_durable_name_and_live(
    server: Server,
) -> None:
    async with server.application("app1") as client:
        live: list[tuple[str, bytes]] = []

        async def receive(message: Msg) -> None:
            live.append((message.subject, message.data))

        await client.subscribe("event.t1.>", cb=receive)
        pulled = await client.jetstream().pull_subscribe(
            "event.t1.>", durable="app1", stream=EVENTS
        )
        for phase, partitions in enumerate((1, 2, 1)):
            await set_partitions(server, partitions, "t1")
            async with bus_of(server, "device") as device:
                await publish(device, 80 * phase)
                await publish(device, 1000 + 80 * phase, tenant="t2")

        numbers: list[int] = []
        with contextlib.suppress(NatsTimeout):
            while messages := await pulled.fetch(100, timeout=2):
                numbers += [int(one.data) for one in messages]
                for message in messages:
                    await message.ack()
        assert sorted(numbers) == list(range(240))
        for first in range(0, 240, 80):  # a change may mix the last events with the next ones
            assert in_order([number for number in numbers if first <= number < first + 80])
        assert sorted(int(body) for _, body in live) == list(range(240))
        assert {subject for subject, _ in live} == {
            f"event.t1.device.{one}.reported" for one in range(DEVICES)
        }


async def test_a_tenant_with_a_new_application_gets_its_retained_events(server: Server) -> None:
    async with bus_of(server, "device") as device:
        await set_partitions(server, 2)
        await publish(device, 0)
        state = (await device.js.stream_info(EVENTS)).state
        assert state.messages == 0

        await set_partitions(server, 2, "t1")

        async with asyncio.timeout(WAIT):
            while (await device.js.stream_info(EVENTS)).state.messages < 80:
                await asyncio.sleep(0.05)


async def test_one_partition_leaves_the_streams_as_they_are(server: Server) -> None:
    async with bus_of(server, "device") as device:
        before = (await device.js.stream_info(EVENTS)).config
        await set_partitions(server, 1, "t1")
        await create_missing_streams(device.js, 1)

        assert (await device.js.stream_info(EVENTS)).config == before
        assert (await read_event_partitions(device.js)).streams == [EVENTS]


async def test_newest_events_of_a_device_are_found_in_all_streams(server: Server) -> None:
    """Pages continue in the next stream; copies in `EVENTS` are left out."""
    for number, partitions in enumerate((1, 2, 3)):
        await set_partitions(server, partitions, "t1")
        async with bus_of(server, "device") as device:
            await publish(device, 80 * number)
    await set_partitions(server, 3, "t1")
    await asyncio.sleep(0.5)

    async with bus_of(server, "device") as device:
        subjects = [device_event("t1", 5, "reported")]
        found: list[int] = []
        before = None
        while page := await read_newest_events(device, subjects, 7, before):
            found += [int(one.message.data) for one in page]
            before = page[-1].sequence

    assert sorted(found) == list(range(5, 240, DEVICES))
    assert found[:10] == list(range(237, 160, -DEVICES))


async def test_each_event_of_a_device_is_in_one_partition(server: Server) -> None:
    await set_partitions(server, 2)
    async with bus_of(server, "device") as device:
        await publish(device, 0)
        numbers = [
            await count_messages(device, f"EVENTS_{n}", "event.t1.device.5.*") for n in (0, 1)
        ]

    assert sorted(numbers) == [0, 10]


async def test_a_backup_restores_partitions_and_what_they_stored_after_the_snapshot(
    tmp_path: Path,
) -> None:
    """`EVENTS` is not completed: it copies again what its snapshot lacks."""
    heads: dict[str, StreamHead] = {}
    chunks: dict[str, list[bytes]] = {}
    later: dict[str, list[StreamMessage]] = {}
    names = (EVENTS, "EVENTS_0", "EVENTS_1")
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    async with nats_door(tmp_path / "old") as old, bus_of(old, "device") as device:
        await set_partitions(old, 2, "t1")
        await publish(device, 0)
        async with bus_of(old, "backup") as bus:
            for name in names:
                async for piece in snapshot_stream(bus.client, name):
                    if isinstance(piece, StreamHead):
                        heads[name] = piece
                    else:
                        chunks.setdefault(name, []).append(piece)
            await publish(device, 80)
            for name in names[1:]:
                last = (await bus.js.stream_info(name)).state.last_seq
                found = [
                    message
                    async for message in read_messages(
                        bus, name, heads[name].state["last_seq"], last
                    )
                ]
                later[name] = [one for some in found for one in some]
    assert [is_partition_copy(heads[name]) for name in names] == [True, False, False]

    async with nats_door(tmp_path / "new") as new, bus_of(new, "admin") as admin:
        await admin.js.delete_stream(EVENTS)
        for name in names:
            restore = StreamRestore(admin.client, heads[name], None)
            await restore.start()
            for chunk in chunks.get(name, ()):
                await restore.send_chunk(chunk)
            await restore.finish()
        for name in names[1:]:
            await publish_missing_messages(admin, name, later[name])
            await advance_sequence(admin, name, 100)
        async with asyncio.timeout(40):
            while await count_messages(admin, EVENTS, "event.t1.>") < 160:
                await asyncio.sleep(0.1)
        numbers = [await count_messages(admin, name, "event.t1.>") for name in names]
        lasts = [(await admin.js.stream_info(name)).state.last_seq for name in names[1:]]

    assert sum(numbers[1:]) == numbers[0] == 160
    assert lasts == [100, 100]
