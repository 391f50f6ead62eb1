"""Connection states, with their events, right again after whatever went wrong."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from libs.common.bus.accounts import MAX_MQTT_SUBSCRIPTIONS
from libs.common.contracts.auth import Connection
from libs.common.jobs import cancel_and_wait
from libs.common.store.migrations import migrate
from libs.common.store.mongo import StoreError, StoreUnavailable
from services.device.migrations import MIGRATIONS
from services.device.telemetry import presence_watch as watches
from services.device.telemetry import system_account
from services.device.telemetry.presence_store import HttpPresence, OfflineTimeouts, PresenceStore
from services.device.telemetry.presence_watch import PresenceWatch
from services.device.telemetry.system_account import ConnectedUser, ConnzPage
from services.device.things.model import Thing
from tests.integration.device.telemetry.test_retention import products
from tests.integration.device.telemetry.world import World, until
from tests.unit.device.telemetry.test_system_account import change


@pytest.fixture
def store(world: World) -> PresenceStore:
    return PresenceStore(world.mongo, world.outbox, world.first.devices)


async def states(world: World) -> dict[int, str]:
    rows = world.database["devices"].find()
    return {row["_id"]: row["connectStatus"] async for row in rows}


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def events(world: World) -> list[str]:
    return [subject.removeprefix("event.default.device.") for subject, _ in await world.said()]


def users(*names: str, server: str = "A") -> list[ConnectedUser]:
    return [ConnectedUser(Connection(server, number), name) for number, name in enumerate(names, 1)]


async def test_each_transition_is_stored_and_published_once(world: World, store: PresenceStore):
    """ONLINE twice is one event, and so is OFFLINE."""
    await world.add(1)
    for _ in range(2):
        assert await store.apply_and_list_opened(users("SN1"), ()) == [1]
    assert await states(world) == {1: "ONLINE"}
    for _ in range(2):
        await store.apply_and_list_opened((), users("SN1"))
    assert await states(world) == {1: "OFFLINE"}
    assert await events(world) == ["1.online", "1.offline"]


async def test_a_reporting_device_is_online_without_a_majority_write(
    world: World, store: PresenceStore
):
    """The transaction reads data of a majority, which may be older than the recorded contact."""
    numbers = range(1, 201)
    for number in numbers:
        await world.add(number)
    minute = timedelta(minutes=1)
    await asyncio.gather(*(store.record_contact(number, soon(0), minute) for number in numbers))
    assert set((await states(world)).values()) == {"ONLINE"}


async def test_two_replicas_at_once_say_it_once(world: World, store: PresenceStore):
    """Both may think that they lead, for a moment."""
    await world.add(1)
    other = PresenceStore(world.mongo, world.outbox, world.first.devices)
    await asyncio.gather(
        *(one.apply_and_list_opened(users("SN1"), ()) for one in (store, other, store))
    )
    assert await events(world) == ["1.online"]


async def test_two_replicas_that_end_connections_leave_none(world: World, store: PresenceStore):
    """Neither relies on the connection that the other one ends."""
    other = PresenceStore(world.mongo, world.outbox, world.first.devices)
    for number in range(1, 11):
        await world.add(number)
        first, second = users(f"SN{number}", f"SN{number}", server=f"S{number}")
        await store.apply_and_list_opened([first, second], ())
        await asyncio.gather(
            store.apply_and_list_opened((), [first]), other.apply_and_list_opened((), [second])
        )
    assert set((await states(world)).values()) == {"OFFLINE"}


@pytest.mark.parametrize("new_first", [True, False])
async def test_a_takeover_keeps_the_device_online(
    world: World, store: PresenceStore, *, new_first: bool
):
    """The new connection may be told before the old one ends, with it, or after."""
    await world.add(1)
    old, new = users("SN1", "SN1")
    await store.apply_and_list_opened([old], ())
    if new_first:
        await store.apply_and_list_opened([new], ())
        await store.apply_and_list_opened((), [old])
    else:
        await store.apply_and_list_opened([new], [old])
    assert await events(world) == ["1.online"]


async def test_connections_of_servers_with_the_same_number_differ(
    world: World, store: PresenceStore
):
    """The number belongs to its server."""
    await world.add(1)
    await store.apply_and_list_opened(users("SN1"), ())
    await store.apply_and_list_opened(users("SN1", server="B"), ())
    await store.apply_and_list_opened((), users("SN1"))
    assert await states(world) == {1: "ONLINE"}
    assert await store.servers() == {"B"}


async def test_known_connections_of_a_server_come_by_number(world: World, store: PresenceStore):
    """Between two numbers, or to the end; applications among them."""
    await store.apply_and_list_opened(users("SN1", "APP.1", "SN3", "SN4"), ())
    await store.apply_and_list_opened(users("SN9", server="B"), ())
    assert [one.name for one in await store.list_server_connections("A", 1, 3)] == ["APP.1", "SN3"]
    assert [one.name for one in await store.list_server_connections("A", 2, None)] == ["SN3", "SN4"]
    assert await store.connections("APP.1") == [Connection("A", 2)]
    assert await store.servers() == {"A", "B"}


async def test_a_device_that_was_never_there_stays_disconnected(world: World, store: PresenceStore):
    """The end of a connection makes OFFLINE only who was ONLINE."""
    await world.add(1)
    await store.apply_and_list_opened((), users("SN1"))
    assert await states(world) == {1: "DISCONNECT"}


async def test_http_devices_fall_silent(world: World, store: PresenceStore):
    """A report over HTTP keeps a device ONLINE for a while; a disconnect does not end it."""
    await world.add(1)
    await store.record_contact(1, soon(0), timedelta(seconds=60))
    await store.apply_and_list_opened(users("SN1"), ())
    await store.apply_and_list_opened((), users("SN1"))
    assert await store.expire_http_lifetimes() == 0
    assert await states(world) == {1: "ONLINE"}
    await silence(world)
    assert await store.expire_http_lifetimes() == 1
    assert await states(world) == {1: "OFFLINE"}
    assert await events(world) == ["1.online", "1.offline"]


async def silence(world: World) -> None:
    """Let the last report over HTTP be long ago."""
    await world.database["devices"].update_one({}, [{"$set": {"httpUntil": "$$NOW"}}])


async def test_a_connected_device_is_checked_once_after_its_last_report(
    world: World, store: PresenceStore
):
    """It stays ONLINE, and later sweeps skip it until it sends over HTTP again."""
    await world.add(1)
    await store.record_contact(1, soon(0), timedelta(seconds=60))
    await store.apply_and_list_opened(users("SN1"), ())
    await silence(world)
    assert [await store.expire_http_lifetimes(), await store.expire_http_lifetimes()] == [1, 0]
    assert await states(world) == {1: "ONLINE"}
    await store.record_contact(1, soon(0), timedelta(seconds=60))
    await store.apply_and_list_opened((), users("SN1"))
    assert await states(world) == {1: "ONLINE"}


async def test_devices_online_before_connections_were_stored_are_checked(world: World):
    """Unconnected devices become OFFLINE, and the others stay ONLINE."""
    await world.database["devices"].delete_many({})
    await world.add(1, connectStatus="ONLINE")
    await world.add(2)
    await world.database["migrations"].delete_one({"_id": 5})
    for name in ("connections", "presence_turn"):
        await world.database[name].drop()
    await migrate(world.database, MIGRATIONS)
    found = await PresenceStore(
        world.mongo, world.outbox, world.first.devices
    ).list_server_connections("before", 0, None)
    assert [entry.name for entry in found] == ["SN1"]


async def things(world: World, *ids: int) -> list[Thing]:
    found = await world.first.things.find_by_sn([await world.add(id_) for id_ in ids])
    return list(found.values())


class Usual:
    """Stands for the limits of products: none has its own."""

    async def find_lifetime(self, thing: Thing) -> None:
        return None


class Notes:
    """Stands for the store of states: remembers which devices were heard."""

    def __init__(self) -> None:
        self.heard_of: list[int] = []
        self.until = datetime.min.replace(tzinfo=UTC)
        self.locked: set[int] = set()
        self.waiting: set[int] = set()
        self.refused: set[int] = set()
        self.faults: list[Exception] = []

    async def record_contact(self, device_id: int, at: datetime, lifetime: timedelta) -> None:
        while device_id in self.locked:
            self.waiting.add(device_id)
            await asyncio.sleep(0.01)
        if device_id in self.refused:
            await asyncio.sleep(0.01)
            raise StoreError("locked")
        if self.faults:
            raise self.faults.pop()
        self.heard_of.append(device_id)
        self.until = at + lifetime


async def noted(notes: Notes, ids: list[int]) -> bool:
    return notes.heard_of == ids


async def waiting_for(notes: Notes, device_id: int) -> bool:
    return device_id in notes.waiting


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setattr("services.device.telemetry.presence_store.RETRY_DELAY_SECONDS", 0.01)
    return Notes()


async def test_hearing_a_device_often_writes_seldom(world: World, notes: Notes):
    """One write for a burst of reports."""
    (thing,) = await things(world, 1)
    presence = HttpPresence(notes, 60, Usual())
    for _ in range(5):
        await presence.record_contact(thing)
    assert notes.heard_of == [1]


class ByThemselves(PresenceStore):
    """Knows which devices were noted by themselves."""

    ids: list[int]

    async def record_contact(self, device_id: int, at: datetime, lifetime: timedelta) -> None:
        self.ids.append(device_id)
        await super().record_contact(device_id, at, lifetime)


async def test_devices_that_speak_together_are_noted_together(world: World):
    """Also those that become ONLINE, which is said of each once; none is noted by itself."""
    store = ByThemselves(world.mongo, world.outbox, world.first.devices)
    store.ids = []
    some = await things(world, 1, 2, 3)
    presence = HttpPresence(store, 60, Usual())
    await presence.record_contacts(some[:2])
    before = datetime.now(UTC).replace(microsecond=0)
    again = HttpPresence(store, 60, Usual())
    for _ in range(2):
        await again.record_contacts(some)
    assert store.ids == []
    said = [body["device"]["deviceId"] for _, body in await world.said()]
    assert sorted(said) == [1, 2, 3]
    async for record in world.database["devices"].find():
        assert record["connectStatus"] == "ONLINE"
        assert record["httpUntil"].replace(tzinfo=UTC) >= before + timedelta(seconds=60)


class OneLocked(ByThemselves):
    """Cannot write devices together: the record of one of them is locked."""

    async def record_contacts(self, ids: list[int], at: datetime, lifetime: timedelta) -> None:
        raise StoreError


async def test_a_locked_record_does_not_delay_other_devices(world: World):
    """If devices cannot be recorded together, each is recorded separately."""
    store = OneLocked(world.mongo, world.outbox, world.first.devices)
    store.ids = []
    presence = HttpPresence(store, 60, Usual())
    await presence.record_contacts(await things(world, 1, 2))

    async def noted() -> bool:
        query = {"connectStatus": "ONLINE", "httpUntil": {"$exists": True}}
        return await world.database["devices"].count_documents(query) == 2

    await until(noted)
    assert sorted(store.ids) == [1, 2]


async def test_a_product_says_after_how_much_silence_its_devices_are_offline(
    world: World, store: PresenceStore
):
    """In minutes; a limit that has become shorter counts from the next word on."""
    key = {"tenant": "default", "model": "m"}
    (thing,) = await things(world, 1)
    for minutes, seconds in ((None, 60.0), (1000, 60_000.0), (2, 120.0)):
        fields = {"deviceOfflineTimeout": minutes}
        await world.database["products"].update_one({"_id": key}, {"$set": fields}, upsert=True)
        presence = HttpPresence(store, 60, OfflineTimeouts(products(world)))
        before = datetime.now(UTC).replace(microsecond=0)
        await presence.record_contact(thing)

        async def noted(seconds: float = seconds, before: datetime = before) -> bool:
            record = await world.database["devices"].find_one({"_id": 1})
            rest = record["httpUntil"].replace(tzinfo=UTC) - before - timedelta(seconds=seconds)
            return timedelta(0) <= rest < timedelta(seconds=30)

        await until(noted)
    record = await world.database["devices"].find_one({"_id": 1})
    await store.record_contact(1, before - timedelta(seconds=30), timedelta(seconds=60))
    assert (await world.database["devices"].find_one({"_id": 1}))["httpUntil"] == record[
        "httpUntil"
    ]


async def test_a_record_that_is_locked_holds_up_no_report_and_no_other_device(
    world: World, notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    """The device is told that its report is taken, and is noted when its record is free."""
    monkeypatch.setattr("services.device.telemetry.presence_store.MAX_RECORD_WAIT_SECONDS", 0.01)
    presence = HttpPresence(notes, 60, Usual())
    locked, free = await things(world, 1, 2)
    notes.locked.add(locked.id)
    for one in (locked, free):
        await presence.record_contact(one)
    assert notes.heard_of == [2]
    notes.locked.clear()
    await until(partial(noted, notes, [2, 1]))


async def test_a_note_is_tried_until_the_database_is_back(world: World, notes: Notes):
    """The report was taken, so the device is ONLINE in the end."""
    presence = HttpPresence(notes, 60, Usual())
    (thing,) = await things(world, 1)
    notes.faults += [StoreUnavailable("away")] * 3
    await presence.record_contact(thing)
    assert notes.heard_of == [1]


async def test_a_note_that_fails_by_itself_is_made_at_the_next_report(world: World, notes: Notes):
    """A fault of ours costs one note."""
    presence = HttpPresence(notes, 60, Usual())
    (thing,) = await things(world, 1)
    notes.faults.append(KeyError("sn"))
    for _ in range(3):
        await presence.record_contact(thing)
    assert notes.heard_of == [1]


async def test_a_note_that_says_nothing_any_more_is_given_up(world: World, notes: Notes):
    """The device was heard long ago when the database is back."""
    presence = HttpPresence(notes, 0.05, Usual())
    (thing,) = await things(world, 1)
    notes.faults += [StoreUnavailable("away")] * 10_000
    await presence.record_contact(thing)

    async def given_up() -> bool:
        return not presence._tasks._running

    await until(given_up)
    assert notes.faults != []
    assert notes.heard_of == []


async def test_a_delayed_record_has_the_time_of_the_last_report(world: World, notes: Notes):
    """The device reported again while its record was locked, and is ONLINE from that time on."""
    presence = HttpPresence(notes, 60, Usual())
    (thing,) = await things(world, 1)
    notes.locked.add(thing.id)
    first = asyncio.ensure_future(presence.record_contact(thing))
    await until(partial(waiting_for, notes, 1))
    second = soon(60)
    await presence.record_contact(thing)
    notes.locked.clear()
    await first
    await until(partial(noted, notes, [1, 1]))
    assert notes.until > second


async def test_more_locked_records_than_notes_at_once_hold_up_no_other(
    world: World, notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    """A note that fails leaves its place to the next."""
    monkeypatch.setattr("services.device.telemetry.presence_store.MAX_RECORD_WAIT_SECONDS", 0.01)
    presence = HttpPresence(notes, 60, Usual())
    several = await things(world, *range(1, 61))
    notes.refused |= {one.id for one in several[:-1]}
    for one in several:
        await presence.record_contact(one)
    await until(partial(noted, notes, [60]))
    await presence.stop()


async def test_a_locked_record_is_waited_for_no_longer_than_it_must(
    world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch
):
    """Threads are few: the driver gives up, and the note is tried again later."""
    await world.add(1)
    devices = world.database["devices"]
    async with await world.mongo.client.start_session() as session, session.start_transaction():
        await devices.update_one({"_id": 1}, {"$set": {"name": "x"}}, session=session)
        with monkeypatch.context() as patch:
            patch.setattr("services.device.things.device_status.MAX_LOCK_WAIT_MS", 50)
            with pytest.raises(StoreError):
                await store.record_contact(1, soon(0), timedelta(seconds=60))
        await session.abort_transaction()
    await store.record_contact(1, soon(0), timedelta(seconds=60))
    assert await states(world) == {1: "ONLINE"}


class Account:
    """Stands for NATS's system account: servers with their connections."""

    def __init__(self) -> None:
        self.open: dict[str, list[ConnectedUser]] = {"A": []}
        self.reconnect_count = 0
        self.asked: list[Connection] = []

    async def servers(self) -> set[str]:
        return set(self.open)

    async def page(self, server: str, offset: int) -> ConnzPage:
        rows = self.open[server][offset : offset + system_account.ROWS_PER_ANSWER]
        cids = [row.connection.cid for row in rows]
        return ConnzPage(cids[0] if cids else 0, cids[-1] if cids else 0, len(rows), rows)

    async def is_open(self, connection: Connection) -> bool:
        self.asked.append(connection)
        return any(row.connection == connection for row in self.open[connection.server])

    async def close(self, connection: Connection) -> None:
        rows = self.open[connection.server]
        rows[:] = [row for row in rows if row.connection != connection]


@pytest.fixture
async def watching(world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A watch whose seconds are short."""
    for name, seconds in (
        ("RETRY_DELAY_SECONDS", 0.05),
        ("SCAN_INTERVAL_SECONDS", 0.05),
        ("MAX_SERVER_SILENCE_SECONDS", 0.3),
    ):
        monkeypatch.setattr(watches, name, seconds)
    account = Account()
    watch = PresenceWatch(
        system=world.bus,
        store=store,
        account=account,  # type: ignore[arg-type]
        reconnects=world.commands.schedule,
        rest=0.05,
    )
    job = asyncio.ensure_future(watch.run())
    yield watch, account
    await cancel_and_wait(job)


async def becomes(world: World, expected: dict[int, str]) -> None:
    async def same() -> bool:
        return await states(world) == expected

    await until(same)


async def test_connections_are_found_without_events(world: World, watching: Any):
    """Closed connections are found, too."""
    _, account = watching
    for number in (1, 2):
        await world.add(number)
    account.open["A"] = users("SN1", "SN2")
    await becomes(world, {1: "ONLINE", 2: "ONLINE"})
    account.open["A"] = users("SN1")
    await becomes(world, {1: "ONLINE", 2: "OFFLINE"})


async def test_a_device_with_too_many_subscriptions_is_disconnected(world: World, watching: Any):
    """Other devices stay connected."""
    _, account = watching
    first, second = users("SN1", "SN2")
    account.open["A"] = [
        msgspec.structs.replace(first, subscriptions=MAX_MQTT_SUBSCRIPTIONS + 1),
        msgspec.structs.replace(second, subscriptions=MAX_MQTT_SUBSCRIPTIONS),
    ]
    for number in (1, 2):
        await world.add(number)
    await becomes(world, {1: "OFFLINE", 2: "ONLINE"})
    assert [user.name for user in account.open["A"]] == ["SN2"]


async def test_a_device_missing_on_a_page_is_not_offline(world: World, watching: Any):
    """A connection that a page lacks is requested separately."""
    _, account = watching
    await world.add(1)
    account.open["A"] = users("SN1")
    await becomes(world, {1: "ONLINE"})
    shown, account.page = account.page, None

    async def empty(server: str, offset: int) -> ConnzPage:
        return ConnzPage(0, 0, 0, [])

    account.page = empty

    async def asked() -> bool:
        return len(account.asked) > 2

    await until(asked)
    account.page = shown
    assert await states(world) == {1: "ONLINE"}
    assert await events(world) == ["1.online"]


async def test_connections_of_a_stopped_server_end_after_a_while(world: World, watching: Any):
    """A device that reconnected to another server stays ONLINE all the time."""
    _, account = watching
    for number in (1, 2):
        await world.add(number)
    account.open["A"] = users("SN1", "SN2")
    await becomes(world, {1: "ONLINE", 2: "ONLINE"})
    account.open = {"B": users("SN1", server="B")}
    await becomes(world, {1: "ONLINE", 2: "OFFLINE"})

    async def said() -> bool:
        return sorted(await events(world)) == ["1.online", "2.offline", "2.online"]

    await until(said)


async def test_a_connection_that_ends_while_a_page_is_on_its_way_stays_ended(
    world: World, store: PresenceStore, watching: Any
):
    """The page still shows it."""
    watch, account = watching
    await world.add(1)
    watch.add(change("SN1", 1))
    watch.add(change("SN1", 1, "x"))
    account.open["A"] = users("SN1", "SN2")

    async def second() -> bool:
        return bool(await store.connections("SN2"))

    await until(second)
    assert await store.connections("SN1") == []


async def test_more_events_than_can_wait_are_made_good(
    world: World, monkeypatch: pytest.MonkeyPatch, watching: Any
):
    """They are not kept, and all servers are looked through."""
    monkeypatch.setattr(watches, "MAX_WAITING_EVENTS", 2)
    monkeypatch.setattr(watches, "SCAN_INTERVAL_SECONDS", 60.0)
    watch, account = watching
    for number in range(1, 6):
        await world.add(number)
    account.open["A"] = users(*(f"SN{number}" for number in range(1, 6)))
    for number in range(1, 6):
        watch.add(change(f"SN{number}", number))
    await becomes(world, dict.fromkeys(range(1, 6), "ONLINE"))


async def test_a_device_that_connects_while_the_database_is_away_is_online_after(
    world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch, watching: Any
):
    """The event was taken in and could not be written; a look makes it good."""
    watch, account = watching
    await world.add(1)
    failed = asyncio.Event()

    async def away(*_: Any) -> list[int]:
        failed.set()
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "apply_and_list_opened", away)
        account.open["A"] = users("SN1")
        watch.add(change("SN1", 1))
        async with asyncio.timeout(30):
            await failed.wait()
    await becomes(world, {1: "ONLINE"})


async def test_http_devices_fall_silent_while_others_come_and_go(
    world: World, store: PresenceStore, watching: Any
):
    """A steady stream of connections does not keep the sweep from its work."""
    watch, _ = watching
    await world.add(1)
    await store.record_contact(1, soon(0), timedelta(seconds=0.1))

    async def offline() -> bool:
        watch.add(change("SN9", 1))
        watch.add(change("SN9", 1, "x"))
        return await states(world) == {1: "OFFLINE"}

    await until(offline)
