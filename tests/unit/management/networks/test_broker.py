"""What a connection to a broker takes, refuses and answers; the other side is played."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from libs.common.errors import InvalidInput
from libs.common.mqtt import encode_packet
from services.management.networks import broker as module
from services.management.networks.broker import (
    BrokerConnection,
    BrokerError,
    LoginRejected,
    ReceivedMessage,
    check_topic_filter,
)
from services.management.networks.settings import Broker

ACCEPTED, NOT_AUTHORIZED = b"\x20\x02\x00\x00", b"\x20\x02\x00\x05"
LOGIN = Broker(host="broker", port=1883, tls=False, username="me", password="secret")


class Written:
    """The sending end of a connection."""

    def __init__(self) -> None:
        self.data = b""
        self.stuck = False

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        """Wait when the broker does not read."""
        while self.stuck:
            await asyncio.sleep(1)

    def close(self) -> None:
        """Nothing is to be closed."""

    @property
    def transport(self) -> "Written":
        """The socket."""
        return self

    def abort(self) -> None:
        """Nothing is to be let go."""


class Peer:
    """A broker that has said something, and the connection to it."""

    def __init__(self, *said: bytes, ends: bool = True) -> None:
        self.reader = asyncio.StreamReader()
        self.written = Written()
        self.reader.feed_data(b"".join(said))
        if ends:
            self.reader.feed_eof()
        writer: Any = self.written
        self.connection = BrokerConnection(self.reader, writer)

    async def batches(self, most: int = 10) -> list[list[ReceivedMessage]]:
        """Receive all, and return what comes before the connection ends with an error."""
        found: list[list[ReceivedMessage]] = []
        await self.connection.read_packets()
        batches = self.connection.receive_batches(most)
        with suppress(BrokerError):
            while True:
                found.append(await anext(batches))
        return found


def published(payload: bytes, packet_id: int = 0, topic: bytes = b"a") -> bytes:
    """A message, of QoS 1 when it has an id."""
    name = len(topic).to_bytes(2, "big") + topic
    if not packet_id:
        return encode_packet(0x30, name + payload)
    return encode_packet(0x32, name + packet_id.to_bytes(2, "big") + payload)


async def test_a_login_names_client_user_and_password():
    """The broker keeps the session of the client."""
    peer = Peer(ACCEPTED)
    await peer.connection.log_in(LOGIN, "thingway-1")
    head = b"\x00\x04MQTT\x04\xc0\x00\x1e"
    fields = b"\x00\x0athingway-1\x00\x02me\x00\x06secret"
    assert peer.written.data == encode_packet(0x10, head + fields)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (NOT_AUTHORIZED, LoginRejected, "Not authorized"),
        (b"\x20\x02\x00\x09", LoginRejected, "code 9"),
        (b"\x30\x02\x00\x00", BrokerError, "does not support MQTT"),
        (b"", BrokerError, "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", BrokerError, "is not taken|does not|closed"),
    ],
)
async def test_a_login_that_is_refused_says_why(answer: bytes, error: type, text: str):
    """Also one to something that is no broker."""
    with pytest.raises(error, match=text):
        await Peer(answer).connection.log_in(LOGIN, "thingway-1")


async def test_messages_come_in_batches_and_are_acknowledged_by_their_ids():
    """Those of QoS 0 have none."""
    peer = Peer(published(b"1", 7), published(b"2"), published(b"3", 0x1234), b"\xd0\x00")
    assert await peer.batches(2) == [
        [ReceivedMessage("a", b"1", b"\x00\x07"), ReceivedMessage("a", b"2")],
        [ReceivedMessage("a", b"3", b"\x12\x34")],
    ]
    await peer.connection.acknowledge(
        [ReceivedMessage("a", b"1", b"\x00\x07"), ReceivedMessage("a", b"2")]
    )
    assert peer.written.data == b"\x40\x02\x00\x07"


async def test_handled_messages_are_acknowledged_after_the_connection_broke():
    """An unreadable message follows, and the broker need not send the earlier ones again."""
    peer = Peer(published(b"1", 7), b"\xff\x00", ends=False)
    assert await peer.batches() == [[ReceivedMessage("a", b"1", b"\x00\x07")]]
    await peer.connection.acknowledge([ReceivedMessage("a", b"1", b"\x00\x07")])
    assert peer.written.data == b"\x40\x02\x00\x07"


@pytest.mark.parametrize(
    ("bound", "most"), [("MAX_WAITING_MESSAGES", 3), ("MAX_WAITING_BYTES", 300)]
)
async def test_waiting_messages_are_bounded(monkeypatch, bound: str, most: int):
    """Received messages are still returned.

    Then the connection ends, and the broker sends the rest again.
    """
    monkeypatch.setattr(module, bound, most)
    peer = Peer(*(published(b"x" * 100, number) for number in range(1, 6)))
    await peer.connection.read_packets()
    batches = peer.connection.receive_batches(10)
    assert [one.packet_id[1] for one in await anext(batches)] == [1, 2, 3]
    with pytest.raises(BrokerError, match="2 messages arrived faster"):
        await anext(batches)


async def test_topics_count_towards_the_bytes_of_waiting_messages(monkeypatch):
    """A broker may send long topics without a payload."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 60_000)
    peer = Peer(*(published(b"", number, b"t" * 10_000) for number in range(1, 6)))
    await peer.connection.read_packets()
    assert len(await anext(peer.connection.receive_batches(10))) == 2


async def test_a_flood_lets_other_tasks_run():
    """Reading what has arrived waits for nothing."""
    peer = Peer(published(b"x") * 1_000)
    receiving = asyncio.ensure_future(peer.connection.read_packets())
    batch: list[ReceivedMessage] = []
    while not batch:
        await asyncio.sleep(0)
        with suppress(BrokerError):
            batch = await anext(peer.connection.receive_batches(1_000))
    assert len(batch) <= module.PACKETS_PER_TURN
    await receiving


@pytest.mark.parametrize("sends", ["acknowledgement", "ping", "publication"])
async def test_a_broker_that_does_not_read_is_disconnected(monkeypatch, sends: str):
    """Else what is sent to it would take more and more memory, also while it sends a lot."""
    monkeypatch.setattr(module, "STEP_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0)
    peer = Peer(published(b"1", 1), ends=False)
    peer.written.stuck = True
    receiving = asyncio.ensure_future(peer.connection.read_packets())
    if sends == "acknowledgement":
        await peer.connection.acknowledge([ReceivedMessage("a", b"1", b"\x00\x01")])
    elif sends == "ping":
        await peer.connection.send_pings()
    else:
        with pytest.raises(TimeoutError):
            await peer.connection.publish("a", b"1", 0)
    peer.reader.feed_data(published(b"2", 2))
    await receiving
    batches = peer.connection.receive_batches(1)
    assert (await anext(batches))[0].payload == b"1"
    with pytest.raises(TimeoutError):
        await anext(batches)


async def test_a_message_that_is_too_large_is_not_read():
    """Its length is enough, and nothing of it needs to have come."""
    peer = Peer(b"\x32\xff\xff\xff\x7f", ends=False)
    await peer.connection.read_packets()
    with pytest.raises(BrokerError, match="has 268435455 bytes"):
        await anext(peer.connection.receive_batches(1))


@pytest.mark.parametrize(
    "packet",
    [
        b"\x32\x80\x80\x80\x80",
        encode_packet(0x34, b"\x00\x01a\x00\x01"),
        encode_packet(0x32, b"\x00\x09a"),
        encode_packet(0x30, b"\x00"),
        encode_packet(0x20, b"\x00\x00"),
    ],
    ids=["no length", "QoS 2", "cut short", "no topic", "CONNACK"],
)
async def test_an_invalid_packet_of_a_broker_ends_the_connection(packet: bytes):
    """None of its messages is returned."""
    assert await Peer(packet).batches() == []


async def test_an_answer_belongs_to_the_packet_of_its_id():
    """A refused topic is named; those that the broker remembers are unsubscribed from first."""
    peer = Peer(ends=False)
    receiving = asyncio.ensure_future(peer.connection.read_packets())
    listening = asyncio.ensure_future(peer.connection.set_subscriptions(["a", "b"], ["a", "old"]))
    sent = b""
    for packet, answer in (
        (b"\xa2\x07\x00\x01\x00\x03old", b"\xb0\x02\x00\x01"),
        (b"\x82\x06\x00\x02\x00\x01a\x01", b"\x90\x03\x00\x02\x01"),
        (b"\x82\x06\x00\x03\x00\x01b\x01", b"\x90\x03\x00\x03\x80"),
    ):
        sent += packet
        while peer.written.data != sent:
            await asyncio.sleep(0)
        peer.reader.feed_data(answer)
    with pytest.raises(BrokerError, match="rejects the subscription of b"):
        await listening
    receiving.cancel()


@pytest.mark.parametrize("answer", [b"\x40\x02\x00\x01", b"\x90\x02\x00\x01"])
async def test_a_subscription_is_granted_by_nothing_else(monkeypatch, answer: bytes):
    """Not by PUBACK of the same id, and not by SUBACK without a return code."""
    monkeypatch.setattr(module, "STEP_TIMEOUT_SECONDS", 0.01)
    peer = Peer(answer, ends=False)
    receiving = asyncio.ensure_future(peer.connection.read_packets())
    with pytest.raises((BrokerError, TimeoutError)):
        await peer.connection.set_subscriptions(["a"], [])
    receiving.cancel()


async def test_a_publication_ends_when_the_connection_is_closed():
    """The settings were changed: it need not wait until the time is over."""
    peer = Peer(ends=False)
    lost = asyncio.ensure_future(peer.connection.publish("a", b"1", 1))
    await asyncio.sleep(0)
    peer.connection.close()
    with pytest.raises(BrokerError, match="closed"):
        await lost
    for qos in (0, 1):
        with pytest.raises(BrokerError, match="closed"):
            await peer.connection.publish("a", b"2", qos)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0", "x" * 70_000])
async def test_nothing_is_published_to_an_invalid_topic(topic: str):
    """The broker would end the connection for it."""
    peer = Peer(ends=False)
    with pytest.raises(InvalidInput, match="is not a topic name"):
        await peer.connection.publish(topic, b"1", 1)
    assert peer.written.data == b""


async def test_a_publication_waits_for_its_acknowledgement():
    """One of QoS 0 waits for nothing; what ends the connection ends it, too."""
    peer = Peer(ends=False)
    await peer.connection.publish("a", b"0", 0)
    publishing = asyncio.ensure_future(peer.connection.publish("a", b"1", 1))
    lost = asyncio.ensure_future(peer.connection.publish("a", b"2", 1))
    receiving = asyncio.ensure_future(peer.connection.read_packets())
    await asyncio.sleep(0)
    assert peer.written.data == published(b"0") + published(b"1", 1) + published(b"2", 2)
    peer.reader.feed_data(b"\x40\x02\x00\x01")
    await publishing
    peer.reader.feed_eof()
    with pytest.raises(BrokerError):
        await lost
    await receiving
    with pytest.raises(BrokerError):
        await peer.connection.publish("a", b"3", 1)


@pytest.mark.parametrize("topic", ["a", "+/a/+", "a/#", "#", "/"])
def test_a_topic_filter_is_taken(topic: str):
    """With wildcards in their places."""
    check_topic_filter(topic)


@pytest.mark.parametrize("topic", ["", "a+", "a/#/b", "#/a", "a#", "a\0", "x" * 70_000])
def test_a_topic_that_is_none_is_refused(topic: str):
    """With the name of its setting."""
    with pytest.raises(InvalidInput, match="is not a topic filter") as refused:
        check_topic_filter(topic, "uplink_topic")
    assert refused.value.field == "uplink_topic"
