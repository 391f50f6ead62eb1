"""Publishing, atomic batches and connections, on a real NATS."""

import asyncio
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy, StreamConfig

from deploy.local import programs
from deploy.platform import ports
from libs.common.bus import EVENTS, Bus, OutgoingMessage
from libs.common.bus.connection import publish_all
from libs.common.errors import TooLarge, Unavailable
from tests.integration.common.messages import events, texts
from tests.servers import Servers, _wait_for_nats


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 1001, 2500])
async def test_all_of_many_messages_are_stored(bus: Bus, count: int):
    """Whatever the number, and however it is cut into batches."""
    await publish_all(bus, events(*range(count)))
    assert (await bus.js.stream_info(EVENTS)).state.messages == count


async def test_single_messages_of_one_write_are_stored_in_order(bus: Bus):
    """However many there are; one that is known is dropped, and counts as stored."""
    await bus.publish(events(*range(1200), prefix="n"))
    await bus.publish(events(1199, 1200, prefix="n"))
    assert await texts(bus) == [b"%d" % number for number in range(1201)]


async def test_a_message_that_is_refused_holds_up_no_other_of_its_write(bus: Bus):
    """The caller is told of it when it is; nobody waits for the rest."""
    refused = OutgoingMessage("nowhere.at.all", b"x")
    with pytest.raises(Unavailable):
        await bus.publish([*events(1), refused, *events(2)])
    async with asyncio.timeout(5):
        while await texts(bus) != [b"1", b"2"]:
            await asyncio.sleep(0.01)
    await bus.publish(events(3))


async def test_messages_of_one_batch_stay_in_order(bus: Bus):
    """A batch is stored as it was given."""
    await publish_all(bus, events(*range(50)))
    assert await texts(bus) == [b"%d" % n for n in range(50)]


async def test_a_batch_with_messages_that_are_known_stores_only_the_others(bus: Bus):
    """Copies are dropped by their id, in the same batch too, and the rest is stored once."""
    mark = datetime.now(UTC).isoformat()
    await publish_all(bus, events(1, 2, 3, prefix=mark))
    await publish_all(bus, events(2, 3, 4, 5, 5, prefix=mark))
    await publish_all(bus, events(1, 2, 3, 4, 5, prefix=mark))
    assert await texts(bus) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.fixture
async def small(bus: Bus) -> Any:
    """A stream that takes three messages."""
    config = StreamConfig(
        name="SMALL", subjects=["small.>"], max_msgs=3, discard=DiscardPolicy.NEW, allow_atomic=True
    )
    await bus.js.add_stream(config)
    yield
    await bus.js.delete_stream("SMALL")


async def test_a_full_stream_takes_a_batch_whole_or_not_at_all(bus: Bus, small: None):
    """`Unavailable`, and nothing of the batch is there."""
    with pytest.raises(Unavailable):
        await publish_all(bus, [OutgoingMessage("small.a", b"x")] * 5)
    assert await texts(bus, "SMALL") == []
    await publish_all(bus, [OutgoingMessage("small.a", b"x")] * 3)
    for given in (1, 2):
        with pytest.raises(Unavailable):
            await publish_all(bus, [OutgoingMessage("small.a", b"x")] * given)
    with pytest.raises(Unavailable):
        await bus.publish([OutgoingMessage("small.a", b"x")] * 2)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_subject_without_a_stream_is_unavailable_at_once(bus: Bus, count: int):
    """Nobody waits for an acknowledgement that cannot come."""
    async with asyncio.timeout(2):
        with pytest.raises(Unavailable):
            await publish_all(bus, [OutgoingMessage("nowhere.at.all", b"x")] * count)


async def test_headers_and_payload_arrive_as_they_were_given(bus: Bus):
    """The frames that are written by hand are those of the client protocol."""
    payload = bytes(range(256)) + b"\r\nPUB x 1\r\n"
    given = [
        OutgoingMessage(f"event.t.device.{n}.x", payload, None, {"A": "b c", "D": "é"})
        for n in (1, 2)
    ]
    await publish_all(bus, given)
    message = await bus.js.get_msg(EVENTS, (await bus.js.stream_info(EVENTS)).state.last_seq)
    assert message.data == payload
    assert (message.headers or {})["A"] == "b c"


async def test_connecting_to_an_address_without_a_server_fails_in_time():
    """Connecting stops after the given time."""
    async with asyncio.timeout(30):
        with pytest.raises((OSError, TimeoutError, NatsError)):
            await Bus.connect("nats://127.0.0.1:1", name="test", wait=0.5)


async def test_a_job_that_asks_ends_when_it_is_cancelled_as_the_answer_comes(bus: Bus):
    """An endless job would ask again, and its process would not end."""
    asked = asyncio.ensure_future(bus.client.request("test.silent", timeout=30))
    silent = await bus.client.subscribe("test.silent")
    while not bus.client._resp_map:
        await asyncio.sleep(0)
    (answer,) = bus.client._resp_map.values()
    answer.set_result(Msg(bus.client))
    asked.cancel()
    await asyncio.wait({asked})
    assert asked.cancelled()
    await silent.unsubscribe()


async def test_a_wrong_login_is_tried_slowly_and_then_fails(tmp_path):
    """The error follows after the wait, with a few attempts a second."""
    port = ports.claim_random()
    config = tmp_path / "nats.conf"
    config.write_text(f"listen: 127.0.0.1:{port}\nauthorization {{ user: a, password: b }}\n")
    log = tmp_path / "nats.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [programs.find_program(programs.NATS).path, "-c", config], stdout=output, stderr=output
        )
    try:
        _wait_for_nats(port)
        with pytest.raises(TimeoutError):
            await Bus.connect(
                f"nats://127.0.0.1:{port}", user="a", password="wrong", name="x", wait=1.0
            )
        assert 1 <= log.read_text().count("authentication error") <= 10
    finally:
        server.terminate()
        server.wait()


INFO = (
    b'INFO {"server_id":"S","version":"2.15.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
)


class Doorman:
    """A NATS server that plays a login in three ways, one connection after another."""

    def __init__(self, *ways: bytes) -> None:
        self.ways = [*ways]
        self.end = asyncio.Event()
        self.let_in = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = self.ways.pop(0)
        writer.write(INFO)
        await reader.readuntil(b"PING\r\n")
        writer.write(way)
        if self.ways and way == b"PONG\r\n":
            await self.end.wait()
        elif not self.ways:
            await reader.readuntil(b"SUB t")
            self.let_in.set()
            await reader.read()
        writer.close()


@pytest.mark.parametrize("reason", ["Authorization Violation", "Authentication Timeout"])
async def test_a_login_that_nobody_answered_is_tried_again(reason: str):
    """While the platform starts nobody answers for logins: the server pings, and then refuses."""
    refused = b"PING\r\n-ERR '%s'\r\n" % reason.encode()
    doorman = Doorman(b"PONG\r\n", refused, refused, b"PONG\r\n")
    async with await asyncio.start_server(doorman, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bus = await Bus.connect(f"nats://127.0.0.1:{port}", user="integration.x", name="x")
        await bus.client.subscribe("t")
        doorman.end.set()
        async with asyncio.timeout(20):
            await doorman.let_in.wait()
        await bus.close()


@pytest.mark.parametrize("turns", range(10))
async def test_a_connection_that_was_just_lost_closes(turns: int):
    """nats-py waits for a future that the end of its attempt to reconnect cancels."""
    doorman = Doorman(b"PONG\r\n", b"PONG\r\n")
    async with await asyncio.start_server(doorman, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bus = await Bus.connect(f"nats://127.0.0.1:{port}", user="integration.x", name="x")
        doorman.end.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await bus.close()
        assert bus.client.is_closed


async def test_a_lost_connection_closes_with_messages_that_were_not_sent():
    """Nothing sends them any more; the subscriptions end as they do otherwise."""
    doorman = Doorman(b"PONG\r\n", b"PONG\r\n")
    async with await asyncio.start_server(doorman, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bus = await Bus.connect(f"nats://127.0.0.1:{port}", user="integration.x", name="x")
        subscription = await bus.client.subscribe("x")
        doorman.end.set()
        while not bus.client.is_reconnecting:
            await asyncio.sleep(0)
        await bus.publish_core("x", b"x")
        await bus.close()
        assert bus.client.is_closed
        with pytest.raises(NatsError):
            await subscription.next_msg(1)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_message_above_the_limit_is_rejected_before_it_is_sent(bus: Bus, count: int):
    """Headers count, too. The server would close the connection."""
    headers = {"X": "x" * 2000}
    large = OutgoingMessage("event.t.large", b"x" * (bus.client.max_payload - 1000), None, headers)
    with pytest.raises(TooLarge, match=r"event\.t\.large"):
        await publish_all(bus, [*events(*range(count - 1)), large])
    with pytest.raises(TooLarge):
        await bus.publish_core(large.subject, large.payload, headers)
    with pytest.raises(NatsError):
        await bus.client.publish(large.subject, large.payload, headers=headers)
    end = OutgoingMessage(
        "event.t.end", b"x" * (bus.client.max_payload - 90)
    )  # the headers of a batch
    with pytest.raises(TooLarge):  # fit, but not beside the one that ends it
        await publish_all(bus, [*events(1), end])
    await publish_all(bus, events(1, 2))
    assert await texts(bus) == [b"1", b"2"]


async def test_a_connection_closed_for_good_ends_the_process(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
):
    """nats-py does so after some errors of the server; leaving by oneself is no such thing."""
    ended: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(
        "libs.common.bus.connection.end_process", lambda reason, _: ended.put_nowait(reason)
    )
    bus = await Bus.connect(servers.nats_url, name="test")
    await bus.client._process_err("'Maximum Payload Violation'")
    async with asyncio.timeout(30):
        assert "closed for good" in await ended.get()
    assert bus.client.is_closed
    bus = await Bus.connect(servers.nats_url, name="test")
    await bus.drain()
    async with asyncio.timeout(30):
        while not bus.client.is_closed:
            await asyncio.sleep(0.01)
    assert ended.empty()
