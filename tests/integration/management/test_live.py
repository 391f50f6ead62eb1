"""Live updates: who subscribes and may see it hears every change once, on any replica."""

import asyncio
import contextlib
import json
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import device_event
from libs.common.contracts.access import ResourceType
from libs.common.contracts.events import DeviceEventReported, DeviceProfile
from libs.common.identity import PRINCIPAL_HEADER, Principal, PrincipalKind
from services.management.live.frames import MAX_SUBSCRIBED_KEYS
from services.management.live.subscriber import MAX_WAITING_FRAMES
from tests.integration.management.live import ENTITY_ID, KEY, World


def _subscription(*keys: str) -> str:
    return json.dumps({"event_type": "Exchange", "payload": {"entity_key": keys}})


async def _subscribe(socket: ClientConnection, *keys: str) -> None:
    """Subscribe; the echo of a heartbeat says that it is done."""
    await socket.send(_subscription(*keys))
    await _echo(socket)


async def _echo(socket: ClientConnection) -> None:
    beat = json.dumps({"event_type": "Heartbeat", "payload": "ping"})
    await socket.send(beat)
    assert await socket.recv() == beat


async def _next(socket: ClientConnection) -> Any:
    async with asyncio.timeout(30):
        return json.loads(await socket.recv())


async def test_a_change_is_pushed_with_its_values(world: World):
    """The keys stand as documented, the values beside them; other keys are not told."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY, "direct.device.S2.temperature", "nonsense")
        await world.report(temperature=21.5, humidity=40)
        assert await _next(socket) == {
            "event_type": "Exchange",
            "payload": {
                "entity_key": [KEY],
                "values": {KEY: {"value": 21.5, "timestamp": 1234}},
            },
        }


async def test_members_of_a_struct_have_keys_of_their_own(world: World):
    """A child is pushed under its key, and so is the object that it belongs to."""
    async with world.socket() as socket:
        await _subscribe(socket, "direct.device.S1.gps", "direct.device.S1.gps.lat")
        await world.report(gps={"lat": 1.5, "lon": 2.5})
        values = (await _next(socket))["payload"]["values"]
        assert values["direct.device.S1.gps.lat"]["value"] == 1.5
        assert values["direct.device.S1.gps"]["value"] == {"lat": 1.5, "lon": 2.5}


async def test_an_event_of_the_tsl_is_a_change_too(world: World):
    """Its key is the event's, its outputs are children."""
    async with world.socket() as socket:
        await _subscribe(socket, "direct.device.S1.alarm.level")
        event = DeviceEventReported(
            event_id="e1",
            created_at=5,
            tenant="default",
            device=DeviceProfile(device_id=7, sn="S1", thing_key="direct.device.S1"),
            ts=9,
            tsl_id="alarm",
            event_type="WARN",
            outputs={"level": 3},
        )
        subject = device_event("default", 7, "event")
        await world.bus.publish([OutgoingMessage(subject, msgspec.json.encode(event), "m1")])
        values = (await _next(socket))["payload"]["values"]
        assert values == {"direct.device.S1.alarm.level": {"value": 3, "timestamp": 9}}


async def test_a_subscription_replaces_the_one_before(world: World):
    """Each socket has its own set; an empty one hears nothing more."""
    async with world.socket() as one, world.socket() as other:
        await _subscribe(one, "direct.device.S1.humidity")
        await _subscribe(one, KEY)
        await _subscribe(other, "direct.device.S1.humidity")
        await world.report(temperature=1, humidity=2)
        assert (await _next(one))["payload"]["entity_key"] == [KEY]
        assert (await _next(other))["payload"]["entity_key"] == ["direct.device.S1.humidity"]
        await _subscribe(one)
        await world.report(temperature=3, humidity=4)
        assert (await _next(other))["payload"]["values"]["direct.device.S1.humidity"]["value"] == 4
        await _echo(one)


async def test_an_id_stands_for_its_key(world: World):
    """Some consoles subscribe with entity ids; they are told what they asked for."""
    async with world.socket() as socket:
        await _subscribe(socket, str(ENTITY_ID), "999999")
        await world.report(temperature=1)
        assert (await _next(socket))["payload"]["entity_key"] == [str(ENTITY_ID)]


async def test_every_replica_sends_every_change_once(world: World):
    """Sockets on both replicas get each report in order, and no second copy."""
    async with world.socket(replica=0) as one, world.socket(replica=1) as other:
        for socket in (one, other):
            await _subscribe(socket, KEY)
        for number in range(20):
            await world.report(event_id=f"r{number}", temperature=number)
            await world.report(event_id=f"r{number}", temperature=number)
        for socket in (one, other):
            told = [(await _next(socket))["payload"]["values"][KEY]["value"] for _ in range(20)]
            assert told == list(range(20))
            await _echo(socket)


async def test_updates_need_a_grant(world: World):
    """It may be a grant of the device, the group, the integration or the entity."""
    async with world.socket(9, super_admin=False) as socket:
        await _subscribe(socket, KEY)
        await world.report(temperature=1)
        await _flushed(world)
        await _echo(socket)
        for kind, identity in (
            (ResourceType.DEVICE, 7),
            (ResourceType.DEVICE_GROUP, 4),
            (ResourceType.INTEGRATION, "direct"),
            (ResourceType.ENTITY, ENTITY_ID),
        ):
            await world.change_grants(9, kind, identity)
            await _told(world, socket)
        await world.change_grants(9, ResourceType.DEVICE, 8)
        await _silent(world, socket)


async def _flushed(world: World) -> None:
    """Wait until another socket has heard what was reported before."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY)
        await world.report(temperature=-1)
        await _next(socket)


async def _told(world: World, socket: ClientConnection) -> None:
    """Report until the socket is told."""
    while True:
        await world.report(temperature=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                assert json.loads(await socket.recv())["payload"]["entity_key"] == [KEY]
                return


async def _silent(world: World, socket: ClientConnection) -> None:
    """Report until the socket is told no more."""
    while True:
        await world.report(temperature=1)
        await _flushed(world)
        beat = json.dumps({"event_type": "Heartbeat", "payload": uuid4().hex})
        await socket.send(beat)
        heard = []
        while not heard or heard[-1] != beat:
            heard.append(await socket.recv())
        if len(heard) == 1:
            return


async def test_other_tenants_get_no_updates(world: World):
    """The same key in another tenant is another entity."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY)
        await world.report(tenant="other", temperature=1)
        await world.report(temperature=2)
        assert (await _next(socket))["payload"]["values"][KEY]["value"] == 2


async def test_a_revoked_token_closes_its_sockets(world: World):
    """Soon after a token has ended its sockets end, with a reason; others stay."""
    async with world.socket() as one, world.socket() as other:
        await world.revoke(one)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await _next(one)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            1008,
            "the token is no longer valid",
        )
        await _echo(other)


async def test_sockets_of_a_deleted_user_are_closed(world: World):
    """The sockets end when `auth` no longer knows the user."""
    async with world.socket(9, super_admin=False) as socket:
        world.gone.add(9)
        await world.change_grants(8, ResourceType.DEVICE, 1)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await _next(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "the user does not exist or is disabled"


async def test_a_malformed_frame_closes_with_a_reason(world: World, subtests: pytest.Subtests):
    """The reason says what is wrong with it."""
    for frame, named in [
        ("nonsense", "not JSON"),
        ("[]", "object"),
        ('{"payload": 1}', "event_type"),
        ('{"event_type": "Exchange"}', "object"),
        ('{"event_type": "Exchange", "payload": {"entity_key": "k"}}', "entity_key"),
        ('{"event_type": "exchange", "payload": {"entity_key": [1]}}', "entity_key"),
        (_subscription(*(f"a.b.{n}" for n in range(MAX_SUBSCRIBED_KEYS + 1)))[:60000], "not JSON"),
    ]:
        with subtests.test(str((frame, named))):
            async with world.socket() as socket:
                await socket.send(frame)
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await _next(socket)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1007
                assert named in closed.value.rcvd.reason


async def test_unknown_kinds_of_frames_are_passed_over(world: World):
    """A newer client may say what this server does not know."""
    async with world.socket() as socket:
        await socket.send('{"event_type": "Weather", "payload": {"wind": 3}}')
        await _echo(socket)


async def test_a_thousand_keys_that_do_not_exist_cost_nothing(world: World):
    """They are accepted, and a key among them that exists is told."""
    async with world.socket() as socket:
        await _subscribe(socket, *(f"direct.device.N{n}.t" for n in range(1000)), KEY)
        await world.report(temperature=1)
        assert (await _next(socket))["payload"]["entity_key"] == [KEY]


async def test_a_slow_reader_gets_the_latest_of_each_key(world: World):
    """Unread updates are not collected forever: in the end it has the newest value."""
    async with world.socket() as fast, world.socket(max_queue=1) as slow:
        for socket in (fast, slow):
            await _subscribe(socket, KEY, "direct.device.S1.text")
        text, last = "x" * 60_000, MAX_WAITING_FRAMES * 3
        for number in range(last + 1):
            await world.report(temperature=number, text=text)
            await _next(fast)
        heard = [(await _next(slow))["payload"]["values"][KEY]["value"]]
        while heard[-1] != last:
            heard.append((await _next(slow))["payload"]["values"][KEY]["value"])
        assert heard == sorted(heard)
        assert len(heard) < last


async def test_without_a_principal_it_stays_shut(world: World):
    """The service answers only through the gateway."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(f"ws://127.0.0.1:{world.ports[0]}/websocket"):
            pass
    assert refused.value.response.status_code == 403


async def test_an_application_stays_outside(world: World):
    """Live updates are for users."""
    principal = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="1")
    headers = {PRINCIPAL_HEADER: world.signer.sign(principal)}
    url = f"ws://127.0.0.1:{world.ports[0]}/websocket"
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(url, additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403


async def _follow(socket: ClientConnection, **pattern: Any) -> None:
    """Follow a pattern; the frame comes back when it holds."""
    frame = json.dumps({"event_type": "Subscribe", "payload": pattern or None})
    await socket.send(frame)
    assert await socket.recv() == frame


async def test_a_pattern_is_followed_beside_keys(world: World):
    """Every change of the tenant is told, other frames stay as they were, and null ends it."""
    async with world.socket() as socket:
        await _subscribe(socket, KEY)
        await _follow(socket, scope="TENANT", keyword="temp")
        await world.report(tenant="other", temperature=1)
        await world.report(humidity=1)
        await world.report(temperature=21.5)
        told = {one["event_type"]: one["payload"] for one in [await _next(socket) for _ in "12"]}
        assert told["Exchange"]["entity_key"] == [KEY]
        assert told["Changes"]["skipped"] == 0
        assert told["Changes"]["changes"] == [
            {
                "type": "PROPERTY",
                "thing_key": "direct.device.S1",
                "timestamp": 1234,
                "values": {KEY: 21.5},
                "device_id": "7",
            }
        ]
        await _follow(socket)
        await world.report(temperature=22)
        assert (await _next(socket))["payload"]["entity_key"] == [KEY]
        await _echo(socket)


async def test_a_pattern_shows_granted_entities(world: World):
    """Grants are checked at each change, also of a single entity, and when they change."""
    async with world.socket(9, super_admin=False) as socket, world.socket() as other:
        await _follow(socket, scope="DEVICE", id="7")
        await _follow(other, scope="GROUP", id=5)
        await world.report(temperature=1)
        await _flushed(world)
        await _echo(socket)
        for kind, identity, keys in (
            (ResourceType.DEVICE_GROUP, 4, 2),
            (ResourceType.ENTITY, ENTITY_ID, 1),
        ):
            await world.change_grants(9, kind, identity)
            await _shows(world, socket, keys)
        await world.change_grants(9, ResourceType.DEVICE, 8)
        await _silent(world, socket)
        await _echo(other)


async def _shows(world: World, socket: ClientConnection, keys: int) -> None:
    """Report until the socket is told of so many keys."""
    while True:
        await world.report(temperature=1, humidity=2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                told = json.loads(await socket.recv())["payload"]["changes"][-1]
                if len(told["values"]) == keys:
                    return


async def test_a_slow_follower_gets_the_number_of_missed_changes(world: World):
    """Waiting changes are bounded: the newest are kept, and the others counted."""
    async with world.socket() as fast, world.socket(max_queue=1) as slow:
        await _subscribe(fast, KEY)
        await _follow(slow, scope="TENANT")
        text, last = "x" * 60_000, 300
        for number in range(last + 1):
            await world.report(temperature=number, text=text)
            await _next(fast)
        heard = skipped = 0
        while True:
            told = (await _next(slow))["payload"]
            skipped += told["skipped"]
            heard += sum(len(change["values"]) for change in told["changes"])
            if told["changes"][-1]["values"][KEY] == last:
                break
        assert skipped > 0
        assert heard + skipped == 2 * (last + 1)
