"""Connection states, with their events, right again after whatever went wrong."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from libs.common.store.mongo import StoreError, StoreUnavailable
from services.device.presence.connections import Connection
from services.device.presence.http import HttpPresence
from services.device.presence.store import PresenceStore
from services.device.presence.watch import PresenceWatch
from services.device.things import Thing
from tests.integration.device.reports.world import World, until
from tests.unit.device.presence.test_tracker import change


@pytest.fixture
def store(world: World) -> PresenceStore:
    return PresenceStore(world.mongo, world.outbox)


async def states(world: World) -> dict[int, str]:
    rows = world.database["devices"].find()
    return {row["_id"]: row["connectStatus"] async for row in rows}


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def events(world: World) -> list[str]:
    return [subject.removeprefix("event.default.device.") for subject, _ in await world.said()]


async def test_each_transition_is_written_and_said_once(world: World, store: PresenceStore):
    """ONLINE twice is one event, and so is OFFLINE."""
    await world.add(1)
    for _ in range(2):
        assert await store.set_online({"SN1"}) == [1]
    assert await states(world) == {1: "ONLINE"}
    for _ in range(2):
        await store.set_offline({"SN1"})
    assert await states(world) == {1: "OFFLINE"}
    assert await events(world) == ["1.online", "1.offline"]


async def test_two_replicas_at_once_say_it_once(world: World, store: PresenceStore):
    """Both may think that they lead, for a moment."""
    await world.add(1)
    other = PresenceStore(world.mongo, world.outbox)
    await asyncio.gather(*(one.set_online({"SN1"}) for one in (store, other, store)))
    assert await events(world) == ["1.online"]


async def test_a_device_that_was_never_there_stays_disconnected(world: World, store: PresenceStore):
    """Reconciling makes OFFLINE only who was ONLINE."""
    await world.add(1)
    await world.add(2, connectStatus="ONLINE")
    await world.add(3, connectStatus="ONLINE")
    await store.set_others_offline({"SN3"})
    assert await states(world) == {1: "DISCONNECT", 2: "OFFLINE", 3: "ONLINE"}


async def test_http_devices_fall_silent(world: World, store: PresenceStore):
    """A report over HTTP keeps a device ONLINE for a while; a disconnect does not end it."""
    await world.add(1)
    await store.heard(1, soon(60))
    await store.set_offline({"SN1"})
    await store.set_others_offline(set())
    await store.sweep_http(set())
    assert await states(world) == {1: "ONLINE"}
    await world.database["devices"].update_one({}, [{"$set": {"httpUntil": "$$NOW"}}])
    await store.sweep_http({"SN1"})
    assert await states(world) == {1: "ONLINE"}
    await store.sweep_http(set())
    assert await states(world) == {1: "OFFLINE"}


async def things(world: World, *ids: int) -> list[Thing]:
    found = await world.first.things.by_sn([await world.add(one) for one in ids])
    return list(found.values())


class Notes:
    """Stands for the store of states: remembers which devices were heard."""

    def __init__(self) -> None:
        self.heard_of: list[int] = []
        self.until = datetime.min.replace(tzinfo=UTC)
        self.locked: set[int] = set()
        self.waiting: set[int] = set()
        self.refused: set[int] = set()
        self.faults: list[Exception] = []

    async def heard(self, device_id: int, until: datetime) -> None:
        while device_id in self.locked:
            self.waiting.add(device_id)
            await asyncio.sleep(0.01)
        if device_id in self.refused:
            await asyncio.sleep(0.01)
            raise StoreError("locked")
        if self.faults:
            raise self.faults.pop()
        self.heard_of.append(device_id)
        self.until = until


async def noted(notes: Notes, ids: list[int]) -> bool:
    return notes.heard_of == ids


async def waiting_for(notes: Notes, device_id: int) -> bool:
    return device_id in notes.waiting


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    monkeypatch.setattr("services.device.presence.http.AGAIN", 0.01)
    return Notes()


async def test_hearing_a_device_often_writes_seldom(world: World, notes: Notes):
    """One write for a burst of reports."""
    (thing,) = await things(world, 1)
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    for _ in range(5):
        await presence.heard(thing)
    assert notes.heard_of == [1]


async def test_a_record_that_is_locked_holds_up_no_report_and_no_other_device(
    world: World, notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    """The device is told that its report is taken, and is noted when its record is free."""
    monkeypatch.setattr("services.device.presence.http.PATIENCE", 0.01)
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    locked, free = await things(world, 1, 2)
    notes.locked.add(locked.id)
    for one in (locked, free):
        await presence.heard(one)
    assert notes.heard_of == [2]
    notes.locked.clear()
    await until(partial(noted, notes, [2, 1]))


async def test_a_note_is_tried_until_the_database_is_back(world: World, notes: Notes):
    """The report was taken, so the device is ONLINE in the end."""
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    (thing,) = await things(world, 1)
    notes.faults += [StoreUnavailable("away")] * 3
    await presence.heard(thing)
    assert notes.heard_of == [1]


async def test_a_note_that_fails_by_itself_is_made_at_the_next_report(world: World, notes: Notes):
    """A fault of ours costs one note."""
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    (thing,) = await things(world, 1)
    notes.faults.append(KeyError("sn"))
    for _ in range(3):
        await presence.heard(thing)
    assert notes.heard_of == [1]


async def test_a_note_that_says_nothing_any_more_is_given_up(world: World, notes: Notes):
    """The device was heard long ago when the database is back."""
    presence = HttpPresence(notes, 0.05)  # type: ignore[arg-type]
    (thing,) = await things(world, 1)
    notes.faults += [StoreUnavailable("away")] * 10_000
    await presence.heard(thing)

    async def given_up() -> bool:
        return not presence._noting._running

    await until(given_up)
    assert notes.faults != []
    assert notes.heard_of == []


async def test_a_note_that_waits_tells_of_the_last_report(world: World, notes: Notes):
    """The device spoke again while its record was locked, and counts as ONLINE from then."""
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    (thing,) = await things(world, 1)
    notes.locked.add(thing.id)
    first = asyncio.ensure_future(presence.heard(thing))
    await until(partial(waiting_for, notes, 1))
    second = soon(60)
    await presence.heard(thing)
    notes.locked.clear()
    await first
    await until(partial(noted, notes, [1, 1]))
    assert notes.until > second


async def test_more_locked_records_than_notes_at_once_hold_up_no_other(
    world: World, notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    """A note that fails leaves its place to the next."""
    monkeypatch.setattr("services.device.presence.http.PATIENCE", 0.01)
    presence = HttpPresence(notes, 60)  # type: ignore[arg-type]
    several = await things(world, *range(1, 61))
    notes.refused |= {one.id for one in several[:-1]}
    for one in several:
        await presence.heard(one)
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
            patch.setattr("services.device.presence.store.LOCKED_MS", 50)
            with pytest.raises(StoreError):
                await store.heard(1, soon(60))
        await session.abort_transaction()
    await store.heard(1, soon(60))
    assert await states(world) == {1: "ONLINE"}


class Account:
    """Stands for NATS's system account."""

    def __init__(self) -> None:
        self.open: dict[str, set[Connection]] = {}

    async def connections(self) -> dict[str, set[Connection]]:
        return {sn: set(found) for sn, found in self.open.items()}


@pytest.fixture
async def watching(world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("services.device.presence.watch.SWEEP", 0.05)
    watch = PresenceWatch(system=world.bus, store=store, commands=world.commands)
    watch._account = account = Account()  # type: ignore[assignment]
    job = asyncio.ensure_future(watch.run())
    yield watch, account
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


async def test_a_device_that_connects_while_the_database_is_away_is_online_after(
    world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch, watching: Any
):
    """The event was taken in and could not be written; the next picture makes it good."""
    watch, account = watching
    await world.add(1)
    failed = asyncio.Event()

    async def drawn() -> bool:
        return bool(watch._connects >= 0)

    await until(drawn)

    async def away(_: Any) -> list[int]:
        failed.set()
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "set_online", away)
        account.open["SN1"] = {("A", 1)}
        watch._changes.put_nowait(change("SN1", 1))
        async with asyncio.timeout(5):
            await failed.wait()

    async def online() -> bool:
        return await states(world) == {1: "ONLINE"}

    await until(online)


async def test_http_devices_fall_silent_while_others_come_and_go(
    world: World, store: PresenceStore, monkeypatch: pytest.MonkeyPatch, watching: Any
):
    """A steady stream of connections does not keep the sweep from its work."""
    monkeypatch.setattr("services.device.presence.watch.SWEEP", 0.5)
    watch, _ = watching
    await world.add(1)
    await store.heard(1, soon(0.1))

    async def offline() -> bool:
        watch._changes.put_nowait(change("SN9", 1))
        watch._changes.put_nowait(change("SN9", 1, "x"))
        return await states(world) == {1: "OFFLINE"}

    await until(offline)
