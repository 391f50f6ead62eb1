"""Live updates over MQTT: a page hears which entities changed, and nobody hears anything else."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiomqtt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from libs.common.contracts.access import ResourceType
from libs.common.contracts.mqtt import live_topic
from libs.common.identity.tokens import live_password_key
from libs.common.mqtt import encode_packet
from services.management.live import console as module
from services.management.live.packets import MAX_PACKET_BYTES
from services.management.live.sockets import LiveSocketProtocol
from tests.integration.management.live import ENTITY_ID, World

MESSAGE = {"event_type": "EXCHANGE", "payload": {"entity_ids": [str(ENTITY_ID)]}}


@contextlib.asynccontextmanager
async def client(
    world: World, username: str, password: str, replica: int = 0, **options: Any
) -> AsyncIterator[aiomqtt.Client]:
    """A client as people use one: paho over WebSocket."""
    connecting = aiomqtt.Client(
        "127.0.0.1",
        world.ports[replica],
        username=username,
        password=password,
        transport="websockets",
        websocket_path="/mqtt",
        **options,
    )
    async with connecting as connected:
        yield connected


async def heard(page: aiomqtt.Client) -> Any:
    """The next message, with its topic."""
    async with asyncio.timeout(30):
        message = await anext(page.messages)
    return str(message.topic), json.loads(message.payload)


@pytest.mark.parametrize("replica", [0, 1])
async def test_a_page_gets_the_ids_of_changed_entities(world: World, replica: int):
    """They arrive on the user's own topic, as the console expects."""
    username, password = await world.page()
    async with client(world, username, password, replica) as page:
        await page.subscribe(live_topic(username))
        await world.report(temperature=21.5, humidity=40)
        assert await heard(page) == (live_topic(username), MESSAGE)


async def test_a_page_is_not_asked_for_pongs(world: World, monkeypatch: pytest.MonkeyPatch):
    """Those of paho are not masked, which ends a connection (RFC 6455, 5.1)."""
    begin = LiveSocketProtocol.start_keepalive

    def begin_soon(protocol: LiveSocketProtocol) -> None:
        protocol.ping_interval = protocol.ping_interval and 0.01
        begin(protocol)

    monkeypatch.setattr(LiveSocketProtocol, "start_keepalive", begin_soon)
    username, password = await world.page()
    async with client(world, username, password) as page:
        await page.subscribe(live_topic(username))
        for value in range(20):
            await world.report(temperature=value)
            assert await heard(page) == (live_topic(username), MESSAGE)


async def test_two_pages_of_a_user_hear_the_same(world: World):
    """Each with a password of its own; who unsubscribes hears no more."""
    (username, first), (_, second) = await world.page(), await world.page()
    async with client(world, username, first) as one, client(world, username, second) as other:
        for page in (one, other):
            await page.subscribe(live_topic(username))
        await world.report(temperature=1)
        assert [await heard(page) for page in (one, other)] == [(live_topic(username), MESSAGE)] * 2
        await one.unsubscribe(live_topic(username))
        await world.report(temperature=2)
        await heard(other)
        assert len(one.messages) == 0


async def test_only_granted_entities_are_published(world: World):
    """Current grants of every kind of resource count."""
    (username, password), (admin, secret) = await world.page(9), await world.page(1)
    async with client(world, username, password) as page, client(world, admin, secret) as ours:
        await page.subscribe(live_topic(username))
        await ours.subscribe(live_topic(admin))
        await world.report(temperature=1)
        await heard(ours)
        assert len(page.messages) == 0
        for kind, identity in (
            (ResourceType.DEVICE, 7),
            (ResourceType.DEVICE_GROUP, 4),
            (ResourceType.INTEGRATION, "direct"),
            (ResourceType.ENTITY, ENTITY_ID),
        ):
            await world.change_grants(9, ResourceType.DEVICE, 8)
            await until_silent(world, page, ours)
            await world.change_grants(9, kind, identity)
            async with asyncio.timeout(30):
                while len(page.messages) == 0:
                    await world.report(temperature=1)
                    await heard(ours)
            assert await heard(page) == (live_topic(username), MESSAGE)


async def until_silent(world: World, page: aiomqtt.Client, ours: aiomqtt.Client) -> None:
    """Report until `ours` is told twice and `page` is not."""
    async with asyncio.timeout(30):
        before = -1
        while before != len(page.messages):
            before = len(page.messages)
            for _ in range(2):
                await world.report(temperature=1)
                await heard(ours)
        while len(page.messages):
            await heard(page)


async def test_other_tenants_get_nothing(world: World):
    """They get neither ids nor a notification."""
    (username, password), (admin, secret) = await world.page(1, "other"), await world.page(1)
    async with client(world, username, password) as page, client(world, admin, secret) as ours:
        await page.subscribe(live_topic(username))
        await ours.subscribe(live_topic(admin))
        await world.report(temperature=1)
        await heard(ours)
        assert len(page.messages) == 0


@pytest.mark.parametrize(
    ("username", "password"),
    [("user-1", "wrong"), ("user-2", None), ("user-1#", None), ("", None), ("user-1", "")],
)
async def test_wrong_credentials_are_refused(world: World, username: str, password: str | None):
    """Return code 5: an unknown password, and a right one with another's name."""
    _, right = await world.page(1)
    with pytest.raises(aiomqtt.MqttError, match=r"code:5|Not authorized"):
        async with client(world, username or None, right if password is None else password):
            pass


async def test_a_will_is_refused(world: World):
    """It would be a publish."""
    username, password = await world.page()
    with pytest.raises(aiomqtt.MqttError, match=r"code:5|Not authorized"):
        async with client(world, username, password, will=aiomqtt.Will("a", "b")):
            pass


class Wire:
    """A socket that says what it likes."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def says(self, data: bytes) -> bytes:
        await self.socket.send(data)
        async with asyncio.timeout(30):
            answer = await self.socket.recv()
        assert isinstance(answer, bytes)
        return answer

    async def closed(self) -> tuple[int, str]:
        """Code and reason; what comes before is passed over."""
        async with asyncio.timeout(30):
            await self.socket.wait_closed()
        assert self.socket.close_code is not None
        return self.socket.close_code, self.socket.close_reason or ""


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def connecting(username: str, password: str, keep_alive: int = 50, level: int = 4) -> bytes:
    head = text("MQTT") + bytes((level, 0xC2)) + keep_alive.to_bytes(2, "big")
    return encode_packet(0x10, head + text("page") + text(username) + text(password))


def subscribing(*topics: str) -> bytes:
    return encode_packet(0x82, b"\x00\x07" + b"".join(text(topic) + b"\x00" for topic in topics))


ACCEPTED = b"\x20\x02\x00\x00"


@pytest.fixture
def wire(world: World):
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Wire]:
        url = f"ws://127.0.0.1:{world.ports[0]}/mqtt"
        async with connect(url, subprotocols=["mqtt"], compression=None) as socket:  # type: ignore[list-item]
            assert socket.subprotocol == "mqtt"
            yield Wire(socket)

    return opened


async def test_a_topic_that_is_not_ones_own_is_refused(world: World, wire):
    """0x80 for another's, wildcards around one's own and all else; 0 for one's own."""
    username, password = await world.page()
    other = live_topic("user-2")
    topics = [other, "#", "+/+/+/+/+", "beaver-iot/+/downlink/web/exchange", "beaver-iot/#"]
    topics += ["$SYS/#", "thing/S1/up/report", live_topic(username) + "/", live_topic(username)]
    async with wire() as page:
        assert await page.says(connecting(username, password)) == ACCEPTED
        answer = await page.says(subscribing(*topics))
        assert answer == b"\x90\x0b\x00\x07" + b"\x80" * 8 + b"\x00"


@pytest.mark.parametrize("topic", ["beaver-iot/user-1/uplink/web/exchange", "thing/S1/up/report"])
async def test_a_publishing_client_is_disconnected(world: World, wire, topic: str):
    """MQTT 3.1.1 has no other error; the message is dropped."""
    async with wire() as page:
        await page.says(connecting(*await world.page()))
        await page.socket.send(encode_packet(0x30, text(topic) + b"{}"))
        assert await page.closed() == (1008, "PUBLISH ends the connection")


async def test_packets_come_in_pieces_and_several_at_once(world: World, wire):
    """Frames of WebSocket and packets of MQTT have nothing to do with each other."""
    username, password = await world.page()
    async with wire() as page:
        whole = connecting(username, password) + subscribing(live_topic(username)) + b"\xc0\x00"
        for at in range(len(whole)):
            await page.socket.send(whole[at : at + 1])
        answers = [await page.socket.recv() for _ in range(3)]
        assert answers == [ACCEPTED, b"\x90\x03\x00\x07\x00", b"\xd0\x00"]
        await page.socket.send(b"\xc0\x00\xc0\x00\xe0\x00")
        assert [await page.socket.recv() for _ in range(2)] == [b"\xd0\x00"] * 2
        assert (await page.closed())[0] == 1008


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1007),
        (b"\xc0\x00", 1007),
        (subscribing("#"), 1007),
        (encode_packet(0x10, text("MQTT") + b"\x04"), 1007),
        (b"\x10\xff\xff\xff\xff\xff", 1007),
        (b"\x10\xff\xff\x7f", 1007),
        (bytes(MAX_PACKET_BYTES + 1), 1009),
        (connecting("u", "p", level=5), 1008),
        ("text", 1007),
    ],
    ids=["http", "ping", "subscribe", "cut", "length", "long", "frame", "version", "text"],
)
async def test_a_client_without_connect_is_disconnected(wire, said: Any, code: int):
    """This happens before any lookup, whatever length the packet announces."""
    async with wire() as page:
        await page.socket.send(said)
        assert (await page.closed())[0] == code


@pytest.mark.parametrize(
    "said",
    [
        connecting("user-1", "again"),
        encode_packet(0x82, b"\x00\x07"),
        encode_packet(0x80, b"\x00\x07" + text("#") + b"\x00"),
        encode_packet(0x82, b"\x00\x07" + text("#") + b"\x03"),
        encode_packet(0x82, b"\x00\x07\x00\x09#"),
        encode_packet(0x82, b"\x00\x07\x00\x01\xff\x00"),
        encode_packet(0x82, b"\x00\x07" + (text("a") + b"\x00") * 21),
        b"\xf0\x00",
        b"\x20\x02\x00\x00",
    ],
)
async def test_a_page_that_breaks_the_protocol_is_closed(world: World, wire, said: bytes):
    """With a reason, and no error of ours."""
    async with wire() as page:
        await page.says(connecting(*await world.page()))
        await page.socket.send(said)
        code, reason = await page.closed()
        assert code in {1007, 1008}
        assert reason


async def test_mqtt_needs_the_sub_protocol(world: World):
    """Clients of `/mqtt` must request `mqtt`."""
    with pytest.raises(InvalidStatus):
        async with connect(f"ws://127.0.0.1:{world.ports[0]}/mqtt"):
            pass


async def test_silence_ends_a_connection(world: World, wire, monkeypatch):
    """Without CONNECT soon; afterwards after one and a half times the keep-alive."""
    async with wire() as page:
        await page.says(connecting(*await world.page(), keep_alive=1))
        assert await page.closed() == (1008, "no packet arrived in time")
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_SECONDS", 0.05)
    async with wire() as stranger:
        assert await stranger.closed() == (1008, "no packet arrived in time")


async def test_a_log_in_that_has_ended_closes_its_pages(world: World, wire):
    """Soon, with a reason; the same password opens nothing any more. Pages of others stay."""
    username, password = await world.page()
    async with wire() as page, wire() as other:
        await page.says(connecting(username, password))
        await other.says(connecting(*await world.page()))
        await world.redis.delete(live_password_key(password))
        assert await page.closed() == (1008, "the token is no longer valid")
        assert await other.says(b"\xc0\x00") == b"\xd0\x00"
    async with wire() as again:
        assert await again.says(connecting(username, password)) == b"\x20\x02\x00\x05"


async def test_a_deleted_user_is_disconnected(world: World, wire):
    """The user cannot reconnect, though the password still exists."""
    credentials = await world.page(9)
    async with wire() as page:
        await page.says(connecting(*credentials))
        world.gone.add(9)
        await world.change_grants(8, ResourceType.DEVICE, 1)
        assert await page.closed() == (1008, "the user does not exist or is disabled")
    async with wire() as again:
        assert await again.says(connecting(*credentials)) == b"\x20\x02\x00\x05"
