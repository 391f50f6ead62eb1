"""The outbox and its relay, on a real MongoDB and NATS."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.bus import EVENTS, Bus, Outbox, OutboxEntry, OutgoingMessage
from libs.common.errors import TooLarge, Unavailable
from libs.common.store.mongo import Mongo, Session
from tests.integration.common.messages import texts
from tests.servers import Servers


async def write(mongo: Mongo, outbox: Outbox, *entries: OutboxEntry) -> list[dict[str, Any]]:
    async def work(session: Session) -> list[dict[str, Any]]:
        return await outbox.store_entries(entries, session)

    if "outbox" not in await mongo.database.list_collection_names():
        await mongo.database.create_collection("outbox")
    return await mongo.transaction(work)


async def age(mongo: Mongo) -> None:
    old = datetime.now(UTC) - timedelta(minutes=1)
    await mongo.database["outbox"].update_many({}, {"$set": {"at": old}})


async def sweep(outbox: Outbox) -> None:
    """Publish the remaining entries of all tenants."""

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
    """Up to the maximum size of a document; no entry is lost, and all keep their order."""
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
        await outbox.publish_or_store(outbox.build_documents(entries))
        stored = await mongo.database["outbox"].find().to_list(None)
        subjects = [entry["subject"] for document in stored for entry in document["entries"]]
        assert subjects == ["event.t.a"] * number
    await age(mongo)
    await sweep(Outbox(mongo.database, bus))
    assert await texts(bus) == [b"x"]


async def test_an_aborted_transaction_says_nothing(mongo: Mongo, bus: Bus):
    """An event is published only if its change is committed."""
    outbox = Outbox(mongo.database, bus)
    await write(mongo, outbox)

    async def work(session: Session) -> None:
        await outbox.store_entries([OutboxEntry("event.t.device.1.x", b"x")], session)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await mongo.transaction(work)
    assert await mongo.database["outbox"].count_documents({}) == 0


async def test_a_relay_without_a_bus_leaves_its_entries_to_the_sweep(
    mongo: Mongo, bus: Bus, servers: Servers
):
    """The caller has committed, so it gets no error if the bus is not available."""
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
