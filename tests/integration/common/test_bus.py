"""Publishing, atomic batches, the outbox and rpc, on a real NATS."""

import asyncio
import contextlib
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DiscardPolicy, StreamConfig
from nats.js.errors import NotFoundError

from deploy.local import programs
from deploy.platform import ports
from libs.common.bus import (
    DEAD,
    EVENTS,
    STREAMS,
    UPLINK,
    BatchConsumer,
    Bus,
    Outbox,
    OutboxEntry,
    OutgoingMessage,
    RpcClient,
    RpcServer,
    acknowledge,
)
from libs.common.bus.connection import publish_all
from libs.common.bus.consumer import MAX_BATCH_BYTES
from libs.common.bus.streams import RETAINED, complete_streams, ensure_streams
from libs.common.errors import (
    Conflict,
    InvalidInput,
    ThingwayError,
    TooLarge,
    TooManyRequests,
    Unavailable,
    UpstreamFailed,
)
from libs.common.store.mongo import Mongo, Session, StoreUnavailable
from libs.common.store_metrics import StreamMetrics, read_backlogs
from tests.servers import Servers, _wait_for_nats


def events(*numbers: int, prefix: str = "") -> list[OutgoingMessage]:
    return [
        OutgoingMessage(f"event.t.device.{n}.x", b"%d" % n, f"{prefix}{n}" if prefix else None)
        for n in numbers
    ]


async def texts(bus: Bus, stream: str = EVENTS) -> list[bytes]:
    info = await bus.js.stream_info(stream)
    numbers = range(max(1, info.state.first_seq), info.state.last_seq + 1)
    return [(await bus.js.get_msg(stream, number)).data or b"" for number in numbers]


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
        name="SMALL",
        subjects=["small.>"],
        max_msgs=3,
        discard=DiscardPolicy.NEW,
        allow_atomic=True,
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


async def test_streams_that_are_there_are_left_alone(bus: Bus):
    """Several processes may make the streams at the same time."""
    await asyncio.gather(*(ensure_streams(bus.js, 1) for _ in range(3)))


async def test_connecting_to_an_address_without_a_server_fails_in_time():
    """Connecting stops after the given time."""
    async with asyncio.timeout(30):
        with pytest.raises((OSError, TimeoutError, NatsError)):
            await Bus.connect("nats://127.0.0.1:1", name="test", wait=0.5)


# The outbox


async def write(mongo: Mongo, outbox: Outbox, *entries: OutboxEntry) -> list[dict[str, Any]]:
    async def work(session: Session) -> list[dict[str, Any]]:
        return await outbox.add(entries, session)

    if "outbox" not in await mongo.database.list_collection_names():
        await mongo.database.create_collection("outbox")
    return await mongo.transaction(work)


async def age(mongo: Mongo) -> None:
    old = datetime.now(UTC) - timedelta(minutes=1)
    await mongo.database["outbox"].update_many({}, {"$set": {"at": old}})


async def sweep(outbox: Outbox) -> None:
    """Publish what was left behind of all tenants."""

    async def steps(tenant: str) -> None:
        async for _ in outbox._steps(tenant):
            pass

    ended = await asyncio.gather(*map(steps, await outbox._tenants()), return_exceptions=True)
    for error in filter(None, ended):
        raise error


async def test_entries_left_behind_of_one_tenant_do_not_delay_those_of_others(
    mongo: Mongo, bus: Bus
):
    """Those of each tenant are a document of their own, and are published in turns."""
    outbox = Outbox(mongo.database, bus)
    for number in range(50):
        await write(mongo, outbox, OutboxEntry(f"event.loud.{number}", b"loud"))
    mixed = OutboxEntry("event.loud.x", b"loud"), OutboxEntry("event.quiet.x", b"quiet")
    assert len(await write(mongo, outbox, *mixed)) == 2
    await age(mongo)
    assert await outbox._tenants() == ["", "loud", "quiet"]
    async for _ in outbox._steps("quiet"):
        pass
    assert await texts(bus) == [b"quiet"]
    await sweep(outbox)
    assert len(await texts(bus)) == 52


async def test_entries_left_by_a_crash_are_published_in_order(mongo: Mongo, bus: Bus):
    """Old entries that no process published are published and deleted."""
    outbox = Outbox(mongo.database, bus)
    for number in range(5):
        await write(mongo, outbox, OutboxEntry(f"event.t.device.{number}.x", b"%d" % number))
    await sweep(outbox)
    assert await texts(bus) == []
    await age(mongo)
    await sweep(outbox)
    assert await texts(bus) == [b"0", b"1", b"2", b"3", b"4"]
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_relay_and_sweep_at_once_publish_once(mongo: Mongo, bus: Bus):
    """The message id drops the copy."""
    outbox = Outbox(mongo.database, bus)
    written = await write(
        mongo, outbox, *(OutboxEntry(f"event.t.device.{n}.x", b"x") for n in range(30))
    )
    await age(mongo)
    await asyncio.gather(
        outbox.publish_stored(written), sweep(outbox), outbox.publish_stored(written)
    )
    assert len(await texts(bus)) == 30
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_a_stream_that_rejects_its_entries_does_not_delay_others(mongo: Mongo, bus: Bus):
    """Rejected entries stay, and the entries behind them are published once."""
    outbox = Outbox(mongo.database, bus)
    await write(
        mongo,
        outbox,
        OutboxEntry("nowhere.a", b"stuck"),
        *(OutboxEntry(f"event.t.device.{n}.x", b"x") for n in range(600)),
    )
    await age(mongo)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await sweep(outbox)
    assert (await bus.js.stream_info(EVENTS)).state.messages == 600
    left = await mongo.database["outbox"].find().to_list(None)
    waiting = [one for entry in left for one in entry["entries"] if "withdrawn" not in one]
    assert [one["payload"] for one in waiting] == [b"stuck"]


async def test_entries_of_an_earlier_version_are_published(mongo: Mongo, bus: Bus):
    """Each entry was a document then."""
    entry = {"subject": "event.t.a", "payload": b"old", "stream": True, "headers": {}}
    await mongo.database["outbox"].insert_one({**entry, "at": datetime.now(UTC)})
    await age(mongo)
    await sweep(Outbox(mongo.database, bus))
    assert await texts(bus) == [b"old"]
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_entries_of_a_stream_are_written_as_one(mongo: Mongo, bus: Bus):
    """As far as a document may be large; none is lost, and all of them keep their order."""
    outbox, large = Outbox(mongo.database, bus), b"x" * 900_000
    plain = OutboxEntry("thing.1.down.command", b"x", stream=False)
    events = [OutboxEntry(f"event.t.{n}", b"%d " % n + large) for n in range(6)]
    written = await write(mongo, outbox, *events, plain)
    assert [len(one["entries"]) for one in written] == [5, 2]
    with pytest.raises(Unavailable):  # an earlier version, rolled back to, leaves it alone
        await bus.publish([OutgoingMessage(written[0]["subject"], written[0]["payload"])])
    await outbox.publish_stored(written)
    assert [text[:1] for text in await texts(bus)] == [b"%d" % n for n in range(6)]


async def test_entries_that_are_sent_are_stored_only_if_the_bus_refuses_them(
    mongo: Mongo, bus: Bus, servers: Servers
):
    """Only events are stored; the caller sends other messages again."""
    entries = [
        OutboxEntry("event.t.a", b"x", id="a"),
        OutboxEntry("thing.1.down.command", b"x", stream=False),
    ]
    gone = await Bus.connect(servers.nats_url, name="gone")
    await gone.drain()
    for number, one in enumerate((bus, gone)):
        outbox = Outbox(mongo.database, one)
        await outbox.send(outbox.build(entries))
        stored = await mongo.database["outbox"].find().to_list(None)
        subjects = [entry["subject"] for document in stored for entry in document["entries"]]
        assert subjects == ["event.t.a"] * number
    await age(mongo)
    await sweep(Outbox(mongo.database, bus))
    assert await texts(bus) == [b"x"]


async def test_an_aborted_transaction_says_nothing(mongo: Mongo, bus: Bus):
    """No event without the change that it tells of."""
    outbox = Outbox(mongo.database, bus)
    await write(mongo, outbox)

    async def work(session: Session) -> None:
        await outbox.add([OutboxEntry("event.t.device.1.x", b"x")], session)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await mongo.transaction(work)
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_a_relay_without_a_bus_leaves_its_entries_to_the_sweep(
    mongo: Mongo, bus: Bus, servers: Servers
):
    """The caller has committed, so it is not told of a bus that is away."""
    gone = await Bus.connect(servers.nats_url, name="gone")
    await gone.drain()
    outbox = Outbox(mongo.database, gone)
    for entry in (
        OutboxEntry("event.t.device.1.x", b"x"),
        OutboxEntry("thing.1.down.command", b"x", stream=False),
    ):
        await outbox.publish_stored(await write(mongo, outbox, entry))
    assert await mongo.database["outbox"].count_documents({}) == 2
    await age(mongo)
    await sweep(Outbox(mongo.database, bus))
    assert await texts(bus) == [b"x"]
    assert await mongo.database["outbox"].count_documents({}) == 0


# rpc


class Ask(msgspec.Struct):
    what: str


class Answer(msgspec.Struct):
    length: int


@pytest.fixture(params=[True, False], ids=["discovered", "undiscovered"])
async def rpc(bus: Bus, request: pytest.FixtureRequest) -> Any:
    server = RpcServer(bus, "test", discovered=request.param)

    async def measure(request: Ask) -> Any:
        match request.what:
            case "conflict":
                raise Conflict("is there\r\nInjected: yes — ü", field="sn", code="sn_exists")
            case "store":
                raise StoreUnavailable("away")
            case "bug":
                raise KeyError("bug")
            case "nonsense":
                return {"length": "long"}
            case "flood":
                return "x" * bus.client.max_payload
        return Answer(len(request.what))

    server.offer("measure", Ask, measure)
    await server.start()
    yield RpcClient(bus)
    await server.stop()


async def test_a_call_is_answered(rpc: RpcClient):
    """Struct in, struct out."""
    assert await rpc.call("rpc.test.measure", Ask("abc"), Answer) == Answer(3)


@pytest.mark.parametrize(
    ("request_", "kind", "code"),
    [
        (Ask("conflict"), Conflict, "sn_exists"),
        (Ask("store"), Unavailable, "service_unavailable"),
        (Ask("bug"), ThingwayError, "server_error"),
        (Ask("nonsense"), UpstreamFailed, "bad_gateway"),
        (Ask("flood"), TooLarge, "data_too_large"),
        (Ask("x" * 2**21), TooLarge, "data_too_large"),
        ({"what": 1}, InvalidInput, "parameter_validation_failed"),
    ],
)
async def test_errors_travel(rpc: RpcClient, request_: Any, kind: type[ThingwayError], code: str):
    """An error of ours is raised again at the caller; others are 5xx and never the caller's."""
    with pytest.raises(ThingwayError) as caught:
        await rpc.call("rpc.test.measure", request_, Answer)
    assert (type(caught.value), caught.value.code) == (kind, code)


async def test_a_request_that_is_not_utf8_is_the_callers_mistake(bus: Bus, rpc: RpcClient):
    """As any other that cannot be read."""
    for body in (b'{"what": "\xff"}', b"{", b"[" * 5000):
        answer = await bus.client.request("rpc.test.measure", body, timeout=5)
        assert (answer.headers or {})["Nats-Service-Error-Code"] == "400"


async def test_requests_are_handled_beside_each_other(bus: Bus):
    """A slow one keeps nobody waiting, and is finished before the server has stopped."""
    server, go_on, answered = RpcServer(bus, "beside"), asyncio.Event(), []

    async def measure(request: Ask) -> Answer:
        if request.what == "slow":
            await go_on.wait()
        answered.append(request.what)
        return Answer(len(request.what))

    server.offer("measure", Ask, measure)
    await server.start()
    client = RpcClient(bus)
    slow = asyncio.ensure_future(client.call("rpc.beside.measure", Ask("slow"), Answer))
    await client.call("rpc.beside.measure", Ask("quick"), Answer)
    stopping = asyncio.ensure_future(server.stop())
    go_on.set()
    await stopping
    assert answered == ["quick", "slow"]
    assert await slow == Answer(4)


async def test_a_request_without_a_responder_fails_immediately(rpc: RpcClient):
    """The error is 503, without a wait."""
    async with asyncio.timeout(2):
        with pytest.raises(Unavailable):
            await rpc.call("rpc.test.nothing", Ask("x"), Answer)


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
    port = ports.choose_free()
    config = tmp_path / "nats.conf"
    config.write_text(f"listen: 127.0.0.1:{port}\nauthorization {{ user: a, password: b }}\n")
    log = tmp_path / "nats.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [programs.find(programs.NATS).path, "-c", config], stdout=output, stderr=output
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


async def test_an_entry_too_large_is_refused_and_an_old_one_holds_up_nobody(mongo: Mongo, bus: Bus):
    """Also one that was written when the bus took more."""
    outbox = Outbox(mongo.database, bus)
    entry = OutboxEntry("event.t.large", b"x" * (bus.client.max_payload + 1))
    with pytest.raises(TooLarge):
        await write(mongo, outbox, entry)
    await write(mongo, outbox, OutboxEntry("event.t.a", b"a"), OutboxEntry("event.t.b", b"b"))
    await mongo.database["outbox"].update_one(
        {"entries.subject": "event.t.a"}, {"$set": {"entries.$.payload": entry.payload}}
    )
    await age(mongo)
    await sweep(outbox)
    assert await texts(bus) == [b"b"]
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_a_batch_is_bounded_by_bytes(bus: Bus):
    """Many large messages come in several batches, each of which fits in memory; none is lost."""
    large, number = b"x" * 900_000, 25
    await bus.publish([OutgoingMessage(f"event.t.{n}", b"%d " % n + large) for n in range(number)])
    sizes: list[int] = []
    seen: set[bytes] = set()
    done = asyncio.Event()

    async def take(messages: list[Msg]) -> None:
        sizes.append(sum(len(message.data) for message in messages))
        seen.update(message.data.partition(b" ")[0] for message in messages)
        await acknowledge(bus.client, messages)
        if len(seen) == number:
            done.set()

    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="bytes", handle=take, batch=1000, from_now=False
    )
    job = asyncio.ensure_future(consumer.run())
    async with asyncio.timeout(20):
        await done.wait()
    job.cancel()
    await asyncio.wait({job})
    await bus.js.delete_consumer(EVENTS, "bytes")
    assert max(sizes) <= MAX_BATCH_BYTES
    assert len(sizes) < number


async def test_a_consumer_applies_changed_subjects(bus: Bus):
    """Events that it did not want at the time of an earlier request are not delivered."""
    wanted = ["event.none"]
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(messages: list[Msg]) -> None:
        await acknowledge(bus.client, messages)
        for message in messages:
            received.put_nowait(message.data)

    consumer = BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable="changes",
        handle=take,
        subjects=lambda: tuple(wanted),
        from_now=True,
    )
    job = asyncio.ensure_future(consumer.run())
    async with asyncio.timeout(20):
        await consumer.update()
        wanted[:] = ["event.a.>"]
        await consumer.update()
        await bus.publish([OutgoingMessage(f"event.{one}.x", one.encode()) for one in "ab"])
        assert await received.get() == b"a"
        wanted[:] = ["event.b.>"]
        await bus.publish([OutgoingMessage("event.a.x", b"a2")])
        assert await received.get() == b"a2"  # ends a request; the next one applies the change
        await bus.publish([OutgoingMessage(f"event.{one}.x", one.encode()) for one in "ab"])
        assert await received.get() == b"b"
    job.cancel()
    await asyncio.wait({job})
    await bus.js.delete_consumer(EVENTS, "changes")


@pytest.mark.parametrize(("lingers", "sizes"), [(True, [2]), (False, [1, 1])])
async def test_a_batch_that_may_linger_includes_later_messages(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, lingers: bool, sizes: list[int]
):
    """The second message arrives while the first one waits."""
    monkeypatch.setattr("libs.common.bus.consumer.LINGER", 0.5)
    first, second = events(1), events(2)
    handled: list[int] = []
    asked: list[asyncio.Task[None]] = []
    done = asyncio.Event()

    def may_linger(_: list[Msg]) -> bool:
        if not asked:
            asked.append(asyncio.ensure_future(bus.publish(second)))
        return lingers

    async def take(messages: list[Msg]) -> None:
        handled.append(len(messages))
        await acknowledge(bus.client, messages)
        if sum(handled) == len(first + second):
            done.set()

    await bus.publish(first)
    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="lingers", handle=take, may_linger=may_linger
    )
    job = asyncio.ensure_future(consumer.run())
    async with asyncio.timeout(20):
        await done.wait()
    job.cancel()
    await asyncio.wait({job})
    await bus.js.delete_consumer(EVENTS, "lingers")
    assert handled == sizes


async def test_a_consumer_waits_with_the_request_that_reads(bus: Bus):
    """One request waits for the first message, and returns others that wait with it."""
    requests: asyncio.Queue[Msg] = asyncio.Queue()
    batches: asyncio.Queue[list[bytes]] = asyncio.Queue()
    busy = asyncio.Event()

    async def handle(messages: list[Msg]) -> None:
        await acknowledge(bus.client, messages)
        batches.put_nowait([message.data for message in messages])
        await busy.wait()

    subject = f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.waiting"
    subscription = await bus.client.subscribe(subject, cb=requests.put)
    consumer = BatchConsumer(
        bus=bus, stream=EVENTS, durable="waiting", handle=handle, concurrency=1, from_now=True
    )
    job = asyncio.ensure_future(consumer.run())
    try:
        async with asyncio.timeout(10):
            await requests.get()
            await bus.publish([OutgoingMessage("event.t.1", b"first")])
            assert await batches.get() == [b"first"]
            await bus.publish([OutgoingMessage("event.t.2", text) for text in (b"a", b"b")])
            assert requests.empty()
            busy.set()
            assert await batches.get() == [b"a", b"b"]
    finally:
        job.cancel()
        await asyncio.wait({job})
        await subscription.unsubscribe()
        await bus.js.delete_consumer(EVENTS, "waiting")


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


async def test_streams_of_an_earlier_version_get_missing_bounds(bus):
    """Their messages and the limits that an operator has set stay."""
    for name in STREAMS:
        with contextlib.suppress(NotFoundError):
            await bus.js.delete_stream(name)
    for name, config in STREAMS.items():
        old = config.evolve(
            max_msgs_per_subject=-1, discard_new_per_subject=False, max_age=None, max_msgs=-1
        )
        await bus.js.add_stream(old.evolve(max_bytes=1024**2) if name == UPLINK else old)
    await bus.js.publish("thing.old.up.report", b"{}")

    await complete_streams(bus.js, 1)

    for name, config in STREAMS.items():
        held = await bus.js.stream_info(name)
        assert held.config.discard_new_per_subject == config.discard_new_per_subject
        assert (held.config.max_age or 0) == (config.max_age or 0)
        assert held.config.max_bytes == (1024**2 if name == UPLINK else config.max_bytes or -1)
    assert (await bus.js.stream_info(UPLINK)).state.messages == 1
    await bus.js.delete_stream(UPLINK)
    await ensure_streams(bus.js, 1)


async def test_one_subject_that_is_full_refuses_its_own_messages_only(bus):
    """A device whose reports wait is told so; another one's are taken, alone and in batches."""
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


async def test_a_consumer_shows_at_once_that_its_stream_was_created_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams are measured later."""
    shown: dict[str, float] = {}

    def show(created: float, labels: dict[str, str]) -> None:
        shown[labels["stream"]] = created

    async def handle(_: list[Msg]) -> None:
        """Do nothing with messages."""

    monkeypatch.setattr("libs.common.bus.consumer.recreated_gauge.set", show)
    await bus.js.delete_stream(DEAD)
    before = datetime.now(UTC) - timedelta(seconds=5)
    await BatchConsumer(bus=bus, stream=DEAD, durable="again", handle=handle)._ensure(DEAD)
    await bus.js.delete_consumer(DEAD, "again")
    assert shown[DEAD] > before.timestamp()


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
        bus, [RETAINED], mongo_of(database).database, partial(complete_streams, bus.js, 1)
    )
    await ensure_streams(bus.js, 1)
    await measured._read()
    await bus.js.delete_stream(RETAINED)
    await bus.js.add_stream(name=RETAINED, subjects=["$MQTT.rmsgs.>"])
    await measured._read()
    held = (await bus.js.stream_info(RETAINED)).config
    assert (held.max_msgs, held.max_age) == (16, 3600)
    assert "was deleted" not in caplog.text
