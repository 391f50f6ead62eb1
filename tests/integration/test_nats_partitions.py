"""A nats-server with two partitions: what a device says is in one stream, whatever its door."""

from collections.abc import AsyncIterator

import pytest

from deploy.backup.records import StreamHead, StreamPosition
from deploy.backup.streams import StreamRestore, advance_sequence, compare_stream, snapshot_stream
from libs.common.bus import Bus, OutgoingMessage, publish_all
from libs.common.bus.streams import (
    UPLINK,
    UPLINK_PARTITION_CONFIGS,
    create_uplink_streams,
    find_uplink_streams,
)
from libs.common.bus.subjects import uplink_subject
from services.device.telemetry.uplink import SEQUENCE_BITS, is_second_copy, read_uplink
from tests.integration.nats_door import KEYS, WAIT, Server, nats_door

TWO = tuple(UPLINK_PARTITION_CONFIGS)[:2]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with (
        nats_door(tmp_path_factory.mktemp("nats"), partitions=2) as running,
        running.service("device-ingest") as ingest,
    ):
        assert await create_uplink_streams(ingest.jetstream(), 1, 2) == [UPLINK, *TWO]
        yield running


async def taken(server: Server, sn: str) -> dict[str, list[tuple[str, str, bytes]]]:
    """What ingest reads of a device, by stream, second copies left out."""
    found: dict[str, list[tuple[str, str, bytes]]] = {}
    async with server.service("device-ingest") as client:
        js = client.jetstream()
        for place, stream in enumerate((UPLINK, *TWO)):
            waiting = (await js.stream_info(stream)).state.messages
            if not waiting:
                continue
            consumer = await js.pull_subscribe("", durable="ingest", stream=stream)
            for message in await consumer.fetch(waiting, timeout=WAIT):
                await message.ack_sync()
                uplink = read_uplink(message)
                assert uplink.sequence >> SEQUENCE_BITS == place
                if uplink.sn == sn and not is_second_copy(message):
                    said = (uplink.sn, uplink.channel, uplink.payload)
                    found.setdefault(stream, []).append(said)
    return found


async def test_all_that_a_device_says_is_in_one_partition_in_order(server):
    """Over MQTT, over NATS with its acknowledgement, and over HTTP in one batch."""
    async with server.mqtt("D1", KEYS["D1"]) as mqtt:
        await mqtt.publish("thing/D1/up/report", b"1", qos=1, timeout=WAIT)
        await mqtt.publish("thing/D1/up/event", b"2", qos=1, timeout=WAIT)
    async with server.device("D1") as nats:
        ack = await nats.jetstream().publish("thing.D1.up.report", b"3")
    async with server.service("gateway") as client:
        bus = Bus(client, client.jetstream())
        await publish_all(
            bus, [OutgoingMessage(uplink_subject("D1", "report"), text) for text in (b"4", b"5")]
        )

    assert await taken(server, "D1") == {
        ack.stream: [
            ("D1", "report", b"1"),
            ("D1", "event", b"2"),
            ("D1", "report", b"3"),
            ("D1", "report", b"4"),
            ("D1", "report", b"5"),
        ]
    }


async def test_devices_are_spread_over_partitions(server):
    """Each of a hundred SNs has one of the two, and none has the stream of before."""
    async with server.service("gateway") as gateway:
        js = gateway.jetstream()
        acks = [
            await js.publish(uplink_subject(f"S{number}", "report"), b"{}") for number in range(100)
        ]

    streams = [ack.stream for ack in acks]
    assert set(streams) == set(TWO)
    assert min(streams.count(one) for one in TWO) > 25


async def test_a_device_cannot_write_into_partitions_as_another(server):
    """Neither the server's own subject nor the mapped one is permitted."""
    async with server.service("admin") as admin, server.mqtt("D1", KEYS["D1"]) as device:
        heard = await admin.subscribe("uplink.>")
        await admin.flush()
        for topic in ("uplink/0/D2/report", "uplink/1/D2/report", "thing/D2/up/report"):
            await device.publish(topic, b"forged", qos=1, timeout=WAIT)
        await device.publish("thing/D1/up/report", b"own", qos=1, timeout=WAIT)

        assert (await heard.next_msg(WAIT)).data == b"own"
        assert heard.pending_msgs == 0
    assert await taken(server, "D2") == {}


async def test_a_backup_restores_what_waits_in_each_stream(server):
    """It is read again, and new messages get sequences that the history does not know."""
    async with server.service("admin") as client, server.service("backup") as reader:
        bus = Bus(client, client.jetstream())
        before = await bus.js.publish(uplink_subject("D1", "report"), b"1")
        await bus.js.publish(f"{uplink_subject('D1', 'report')}.old", b"0")
        for name in (UPLINK, *TWO):
            last = (await bus.js.stream_info(name)).state.last_seq
            head, *chunks = [piece async for piece in snapshot_stream(reader, name)]
            assert isinstance(head, StreamHead)
            await bus.js.delete_stream(name)
            restore = StreamRestore(client, head, None)
            await restore.start()
            for chunk in chunks:
                await restore.send_chunk(chunk)
            await restore.finish()
            await advance_sequence(bus, name, last + 3)
            await compare_stream(bus, name, StreamPosition(last + 3, 1, 0))
        after = await bus.js.publish(uplink_subject("D1", "report"), b"2")
        waiting = (await bus.js.stream_info(UPLINK)).state.messages

    assert (after.stream, after.seq, waiting) == (before.stream, before.seq + 4, 1)
    reports = [("D1", "report", text) for text in (b"1", b"2")]
    assert (await taken(server, "D1"))[before.stream] == reports


async def test_messages_in_former_partitions_are_found(server):
    """This holds for fewer partitions, too; `device` lists the planned ones as well."""
    async with server.service("device-ingest") as ingest, server.service("device") as device:
        assert await create_uplink_streams(ingest.jetstream(), 1, 1) == [UPLINK, *TWO]
        assert await find_uplink_streams(device.jetstream(), 3) == [UPLINK, *TWO, "UPLINK_2"]
