"""Sockets of a tenant: frames are shared, and what waits for slow ones is bounded in bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from libs.common.bus import BatchConsumer
from libs.common.changes import ChangedThing, EntityChange
from libs.common.contracts.access import GrantedResources
from libs.common.contracts.limits import Limits, UsageRequest
from libs.common.errors import TooManyRequests
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from services.management.live import frames, sockets
from services.management.live.access import AdmissionControl
from services.management.live.events import LiveEventConsumer
from services.management.live.frames import ChangeFilter, EncodedChange
from services.management.live.hub import MAX_WAITING_BYTES_PER_TENANT, Hub, Subscriptions
from services.management.live.mqtt_publisher import MqttPublisher
from services.management.live.sockets import LiveSocket, SocketTurns
from services.management.live.subscriber import MAX_WAITING_BYTES, MAX_WAITING_FRAMES, Subscriber

THING = ChangedThing(7, "direct.device.S1", "direct", True, 4, "TH", "Roof north")
KEYS = [f"direct.device.S1.k{number}" for number in range(480)]
KEY = KEYS[0]
REPORTED = (
    b'{"eventId":"e1","tenant":"t","device":{"deviceId":7,"thingKey":"direct.device.S1"},'
    b'"ts":1,"properties":{"k0":21.5}}'
)
NOTHING = Grants(everything=False, resources=GrantedResources(version=1))


class Socket(LiveSocket):
    """A socket whose client keeps up or not."""

    def __init__(self, hub: Hub, grants: Grants = SUPER_ADMIN_GRANTS) -> None:
        self.sent: list[str] = []
        self.writable = asyncio.Event()
        self.subscriber = Subscriber(Principal(PrincipalKind.USER, "t", "1"), "", grants, self)
        hub.add(self.subscriber)

    async def send_next(self, tenant: str, next_frame: Callable[[], str | bytes | None]) -> None:
        await self.writable.wait()
        frame = next_frame()
        assert isinstance(frame, str)
        self.sent.append(frame)

    async def read(self) -> list[Any]:
        """Keep up, and return the payloads that were sent since."""
        self.writable.set()
        while self.subscriber._sending is not None:
            await asyncio.sleep(0)
        found = [json.loads(text)["payload"] for text in self.sent]
        self.sent.clear()
        self.writable.clear()
        return found


def waiting(hub: Hub) -> int:
    """Return the bytes that wait for all sockets."""
    return hub._tenants["t"].queued.size


class Changes:
    """Reports of one device."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._number = 0

    async def report(self, ts: int | None = None, **values: Any) -> None:
        """Report values measured at `ts`, by default after all earlier ones."""
        self._number += 1
        prefixed = {f"direct.device.S1.{name}": value for name, value in values.items()}
        change = EntityChange(f"e{self._number}", "t", THING, ts or self._number, prefixed)
        await self._hub.push([change], self._pause)

    async def _pause(self) -> None:
        pass


@pytest_asyncio.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub(MqttPublisher(None, None))  # type: ignore[arg-type]
    yield hub
    for listener in list(hub.listeners):
        hub.remove(listener)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values of each frame that was encoded."""
    found: list[int] = []
    encoder = frames._encoder

    class Counting:
        def encode(self, push: Any) -> bytes:
            found.append(len(push.payload.values))
            return encoder.encode(push)

    monkeypatch.setattr(frames, "_encoder", Counting())
    return found


async def test_a_change_is_encoded_once_for_all_sockets_with_the_same_keys(
    hub: Hub, encoded: list[int]
) -> None:
    """One hundred sockets with 480 keys each cost one frame a report."""
    opened = [Socket(hub) for _ in range(100)]
    for entry in opened:
        hub.set_keys(entry.subscriber, frozenset(KEYS), {})
    changes = Changes(hub)
    for number in range(3):
        await changes.report(**{f"k{name}": number for name in range(480)})
    assert encoded == [480] * 3
    for entry in opened:
        assert [told["values"][KEY]["value"] for told in await entry.read()] == [0, 1, 2]


async def test_sockets_with_other_grants_get_frames_of_their_own(
    hub: Hub, encoded: list[int]
) -> None:
    """Members with the same granted keys share one frame, and who sees nothing is sent nothing."""
    whole, half, same, none = (
        Socket(hub, grants) for grants in (SUPER_ADMIN_GRANTS, NOTHING, NOTHING, NOTHING)
    )
    for one in (whole, half, same, none):
        hub.set_keys(one.subscriber, frozenset(KEYS), {})
    for one in (half, same):
        one.subscriber.granted_keys = frozenset((KEY, "direct.device.S2.other"))
    await Changes(hub).report(k0=1, k1=2)
    assert sorted(encoded) == [1, 2]
    assert [told["entity_key"] for told in await half.read()] == [[KEY]]
    assert await same.read() == [
        {"entity_key": [KEY], "values": {KEY: {"value": 1, "timestamp": 1}}}
    ]
    assert len((await whole.read())[0]["values"]) == 2
    assert await none.read() == []


async def test_an_id_is_sent_as_the_client_named_it(hub: Hub) -> None:
    """The key comes with it, if the client subscribes to both."""
    both, alias = Socket(hub), Socket(hub)
    hub.set_keys(both.subscriber, frozenset((KEY,)), {KEY: "57345"})
    hub.set_keys(alias.subscriber, frozenset(), {KEY: "57345"})
    await Changes(hub).report(k0=1, k1=2)
    assert [told["entity_key"] for told in await both.read()] == [[KEY, "57345"]]
    assert [told["entity_key"] for told in await alias.read()] == [["57345"]]


async def test_a_second_copy_and_a_closed_socket_change_nothing(hub: Hub) -> None:
    """Known values are not sent again, and nothing is kept of a tenant without sockets."""
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    changes = Changes(hub)
    await changes.report(k0=1)
    changes._number = 0
    await changes.report(k0=1)
    assert len(await one.read()) == 1
    hub.set_keys(one.subscriber, frozenset((KEYS[1],)), {})
    await changes.report(k0=2)
    assert await one.read() == []
    hub.remove(one.subscriber)
    assert not hub.has_socket("t")


async def test_a_slow_reader_keeps_every_frame_up_to_a_number(hub: Hub) -> None:
    """Beyond it the latest value of each key waits."""
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    changes = Changes(hub)
    for number in range(MAX_WAITING_FRAMES):
        await changes.report(k0=number, k1=number)
    assert len(await one.read()) == MAX_WAITING_FRAMES
    for number in range(MAX_WAITING_FRAMES + 2):
        await changes.report(**{f"k{number % 2}": number})
    (told,) = await one.read()
    assert [told["values"][key]["value"] for key in KEYS[:2]] == [
        MAX_WAITING_FRAMES,
        MAX_WAITING_FRAMES + 1,
    ]


async def test_a_slow_reader_receives_the_values_that_were_measured_last(hub: Hub) -> None:
    """A late report replaces no newer value, whether it arrives before or after the merge."""
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    changes = Changes(hub)
    await changes.report(ts=2_000, k0="newest", k1="newest")
    for _ in range(MAX_WAITING_FRAMES):
        await changes.report(ts=1_000, k0="late")
    await changes.report(ts=1_999, k0="late", k1="late")
    await changes.report(ts=2_000, k1="corrected")
    (told,) = await one.read()
    assert told["values"] == {
        KEYS[0]: {"value": "newest", "timestamp": 2_000},
        KEYS[1]: {"value": "corrected", "timestamp": 2_000},
    }


async def test_frames_waiting_for_a_slow_reader_are_bounded_in_bytes(hub: Hub) -> None:
    """Large frames are merged early, and merged frames stay small."""
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    changes = Changes(hub)
    for number in range(40):
        await changes.report(**{f"k{number % 20}": f"{number}" + "x" * 100_000})
        assert waiting(hub) <= MAX_WAITING_BYTES + 101_000
    told = await one.read()
    assert max(len(json.dumps(frame)) for frame in told) < 400_000
    latest = {key: value["value"] for frame in told for key, value in frame["values"].items()}
    assert [latest[KEYS[number]][:2] for number in range(20)] == [str(20 + n) for n in range(20)]
    assert waiting(hub) == 0


async def test_all_slow_readers_of_a_tenant_share_a_bound(hub: Hub) -> None:
    """However many sockets a tenant has, so many bytes wait, and one frame of each socket."""
    opened = [Socket(hub) for _ in range(60)]
    for number, one in enumerate(opened):  # none has the same keys, so nothing is shared
        hub.set_keys(one.subscriber, frozenset((KEY, KEYS[number + 1])), {})
    changes = Changes(hub)
    for number in range(12):
        await changes.report(k0=f"{number:02}" + "x" * 90_000)
    assert waiting(hub) < MAX_WAITING_BYTES_PER_TENANT + 100_000
    for one in opened:
        assert (await one.read())[-1]["values"][KEY]["value"][:2] == "11"
        one.subscriber.stop()
    assert waiting(hub) == 0


async def test_followers_of_one_pattern_share_a_change(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is selected and encoded once, also for those who see one key of it."""
    made: list[int] = []

    def encode(_: Any, change: EntityChange, values: Any) -> EncodedChange:
        made.append(len(values))
        return original(change, values)

    original = EncodedChange.encode
    monkeypatch.setattr(EncodedChange, "encode", classmethod(encode))
    opened = [
        Socket(hub, grants) for grants in (SUPER_ADMIN_GRANTS, SUPER_ADMIN_GRANTS, NOTHING, NOTHING)
    ]
    for entry in opened:
        hub.set_filter(entry.subscriber, ChangeFilter(scope="TENANT"))
        entry.subscriber.granted_keys = frozenset((KEY,))
    await Changes(hub).report(k0=1, k1=2)
    assert sorted(made) == [1, 2]
    told = [len((await entry.read())[0]["changes"][0]["values"]) for entry in opened]
    assert told == [2, 2, 1, 1]


async def test_a_new_pattern_drops_waiting_changes_of_the_old_one(hub: Hub) -> None:
    """No change of the old pattern is sent afterwards."""
    one = Socket(hub)
    changes = Changes(hub)
    hub.set_keys(one.subscriber, frozenset((KEY,)), {})
    hub.set_filter(one.subscriber, ChangeFilter(scope="TENANT"))
    await changes.report(k0=1)
    hub.set_filter(one.subscriber, ChangeFilter(scope="DEVICE", id=8))
    await changes.report(k0=2)
    assert [list(told) for told in await one.read()] == [["entity_key", "values"]] * 2
    hub.set_filter(one.subscriber, ChangeFilter(scope="DEVICE", id=7))
    await changes.report(k0=3)
    assert sorted(next(iter(told)) for told in await one.read()) == ["entity_key", "skipped"]


class KnownLimits:
    """Limits of everybody."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def get(self, _: str) -> Limits:
        return self._limits


async def test_keys_are_counted_by_user_and_tenant(hub: Hub) -> None:
    """All sockets of a user may have 480 keys each; beyond the limit one is refused alone."""
    limits = Limits()
    admission = AdmissionControl(None, None, KnownLimits(limits))  # type: ignore[arg-type]
    subscriptions = Subscriptions(hub, None, admission, SocketTurns())  # type: ignore[arg-type]
    opened = [Socket(hub).subscriber for _ in range(limits.each_websockets)]
    for one in opened:
        await subscriptions.set_keys(one, frozenset(KEYS))
    await subscriptions.set_keys(opened[0], frozenset(KEYS[:10]))
    used = await admission.measure_usage(UsageRequest(tenant="t", kind="user", subject="1"))
    assert used["eachWebsocketKeys"] == used["websocketKeys"] == 99 * 480 + 10
    many = [frozenset(f"a.{number}.{key}" for key in range(10_000)) for number in range(6)]
    for one, keys in zip(opened[1:], many[:5], strict=False):
        await subscriptions.set_keys(one, keys)
    with pytest.raises(TooManyRequests, match="eachWebsocketKeys"):
        await subscriptions.set_keys(opened[6], many[5])
    for one in opened:
        subscriptions.remove_socket(one)
    used = await admission.measure_usage(UsageRequest(tenant="t", kind="user", subject="1"))
    assert used["eachWebsocketKeys"] == used["websocketKeys"] == 0


async def test_steps_of_one_tenant_delay_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a slice is used up, others take their turn beside whoever has much to do."""
    clock = iter(range(1_000_000))
    monkeypatch.setattr(
        sockets,
        "time",
        SimpleNamespace(monotonic=lambda: next(clock) * sockets.TIME_SLICE_SECONDS / 4),
    )
    turns, done = SocketTurns(), []

    async def step(tenant: str) -> None:
        async with turns.step(tenant):
            done.append(tenant)

    loud = [asyncio.ensure_future(step("loud")) for _ in range(1_000)]
    await asyncio.sleep(0)
    quiet = asyncio.ensure_future(step("quiet"))
    await quiet
    assert len(done) < 10 * sockets.STEPS_PER_ITERATION
    await asyncio.gather(*loud)
    assert len(done) == 1_001


async def test_a_client_that_does_not_keep_up_holds_no_turn() -> None:
    """Nothing is encoded for it either, so it gets the newest values once it reads."""
    turns, sent, made = SocketTurns(), [], []

    class WebSocket:
        def __init__(self) -> None:
            self.writable = asyncio.Event()
            self.scope = {"state": {sockets.WRITABLE_STATE_KEY: self.writable}}

        async def send_data(self, data: str, mode: str) -> None:
            sent.append((data, mode))

    def frame() -> str:
        made.append(1)
        return "frame"

    slow, fast = WebSocket(), WebSocket()
    fast.writable.set()
    waiting = [
        asyncio.ensure_future(LiveSocket(slow, turns).send_next("t", frame))  # type: ignore[arg-type]
        for _ in range(100)
    ]
    await asyncio.sleep(0)
    await LiveSocket(fast, turns).send_next("t", frame)  # type: ignore[arg-type]
    assert (sent, len(made)) == ([("frame", "text")], 1)
    slow.writable.set()
    await asyncio.gather(*waiting)
    assert len(sent) == 101


async def test_events_of_a_tenant_without_sockets_are_not_read(hub: Hub) -> None:
    """They are acknowledged, and one that is not readable stops no other."""
    written: list[bytes] = []

    async def write(frames: bytes) -> None:
        written.append(frames)

    async def flush() -> None:
        pass

    client = SimpleNamespace(_send_command=write, _flush_pending=flush)
    handle = LiveEventConsumer(SimpleNamespace(client=client), hub).push  # type: ignore[arg-type]
    message = SimpleNamespace(subject="event.t.device.7.reported", reply="ack", headers=None)
    await handle([message])  # type: ignore[list-item]
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset((KEY,)), {})
    broken = SimpleNamespace(**vars(message), data=b"{")
    fine = SimpleNamespace(**vars(message), data=REPORTED)
    await handle([broken, fine])  # type: ignore[list-item]
    assert [told["values"][KEY]["value"] for told in await one.read()] == [21.5]
    assert written == [b"PUB ack 0\r\n\r\n", b"PUB ack 0\r\n\r\n" * 2]


async def test_a_socket_waits_until_the_bus_delivers_events_of_its_tenant(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One update of the consumer serves all sockets that wait, and later ones of the tenant."""
    updates: list[tuple[str, ...]] = []

    async def read_partitions(_: float) -> SimpleNamespace:
        return SimpleNamespace(streams=["EVENTS"])

    bus = SimpleNamespace(is_connected=True, read_partitions=read_partitions)
    events = LiveEventConsumer(bus, hub)  # type: ignore[arg-type]

    async def ensure(consumer: BatchConsumer, stream: str) -> tuple[str, ...]:
        assert stream == "EVENTS"
        updates.append(consumer._wanted_subjects())
        await asyncio.sleep(0)
        return updates[-1]

    monkeypatch.setattr(BatchConsumer, "_ensure_consumer", ensure)
    one = Socket(hub)
    await asyncio.gather(events.wait_until_subscribed("t"), events.wait_until_subscribed("t"))
    await events.wait_until_subscribed("t")
    assert len(updates) == 1
    assert "event.t.*.*.reported" in updates[0]
    hub.remove(one.subscriber)
    assert not [subject for subject in events.consumer._wanted_subjects() if ".t." in subject]
    Socket(hub)
    await events.wait_until_subscribed("t")
    assert len(updates) == 2


async def test_changes_that_come_too_fast_are_merged(hub: Hub) -> None:
    """A backlog of one thing becomes one frame of the latest values; patterns get every change."""
    one, follower = Socket(hub), Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    hub.set_filter(follower.subscriber, ChangeFilter(scope="TENANT"))
    changes = [
        EntityChange(f"e{number}", "t", THING, number, {KEYS[number % 2]: number})
        for number in range(9)
    ]

    async def pause() -> None:
        pass

    await hub.push(changes, pause)
    (told,) = await one.read()
    assert {key: value["timestamp"] for key, value in told["values"].items()} == {
        KEYS[0]: 8,
        KEYS[1]: 7,
    }
    assert [len(told["changes"]) for told in await follower.read()] == [9]


async def test_a_late_report_of_a_backlog_replaces_no_newer_value(hub: Hub) -> None:
    """Of several values of a key the one measured last is sent; of equal times, the last."""
    one = Socket(hub)
    hub.set_keys(one.subscriber, frozenset(KEYS), {})
    changes = [
        EntityChange(f"e{number}", "t", THING, ts, {KEY: number})
        for number, ts in enumerate((5, 9, 9, 7))
    ]

    async def pause() -> None:
        pass

    await hub.push(changes, pause)
    (told,) = await one.read()
    assert told["values"] == {KEY: {"value": 2, "timestamp": 9}}
