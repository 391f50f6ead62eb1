"""From `UPLINK` to history, latest values and events, exactly once in effect."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from libs.common.bus import DEAD, UPLINK, BatchConsumer
from libs.common.identity import Principal, PrincipalKind
from libs.common.store.mongo import Session
from services.device.registry.products.service import ProductService
from services.device.telemetry.ledger import LedgerTotals
from services.device.telemetry.partitions import KEY_FORMAT
from services.device.things.product_model import PutProduct
from services.device.things.specifications import TslStore
from tests.integration.device.telemetry.world import DURABLE, World


def now_ms() -> int:
    return int(time.time() * 1000)


async def test_a_report_is_stored_shown_and_announced_before_it_is_acknowledged(world: World):
    """A good report is in history, in the latest values and in EVENTS; UPLINK is empty."""
    sn = await world.add(7)
    await world.say(sn, {"ts": (ts := now_ms() - 5), "properties": {"temperature": 20}})
    await world.deal(1)
    (row,) = await world.stored()
    assert row["p"] == {"temperature": 20.0}
    assert await world.latest_of(7) == {"temperature": 20.0}
    ((subject, body),) = await world.said()
    assert subject == "event.default.device.7.reported"
    assert (body["ts"], body["properties"]) == (ts, {"temperature": 20.0})
    await world.drained()
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


async def test_bad_properties_are_refused_one_by_one(world: World):
    """The good properties of a report are kept, and the bad ones are told of."""
    sn = await world.add(7)
    await world.say(sn, {"properties": {"temperature": "warm", "interval": 5}})
    await world.deal(1)
    assert [row["p"] for row in await world.stored()] == [{"interval": 5}]
    (_, (subject, rejected)) = await world.said()
    assert subject == "event.default.device.7.rejected"
    assert [fault["path"] for fault in rejected["faults"]] == ["properties.temperature"]
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


async def test_a_report_of_an_unknown_sn_is_in_dead_and_counted(world: World):
    """An unknown SN is never stored."""
    await world.say("NOBODY", {"properties": {"temperature": 1}})
    await world.deal(1)
    ((subject, body),) = await world.said(DEAD)
    assert subject == "dead.uplink.NOBODY"
    assert "there is no device" in body["reason"]
    assert await world.totals() == LedgerTotals(stored=0, rejected=1)


async def test_a_redelivered_batch_changes_nothing(world: World):
    """A batch whose acknowledgement was lost is stored, counted and announced once."""
    sn, quiet = await world.add(7), await world.add(8, dataStorage=False)
    await world.say(sn, {"properties": {"temperature": 1}})
    await world.say(quiet, {"properties": {"temperature": 2}})
    await world.say(sn, {"eventId": "alarm", "outputs": {"level": 3}}, "event")
    await world.say("NOBODY", {"properties": {"temperature": 1}})
    await world.say(sn, b"nonsense")
    messages = await world.fetch(5)
    for process in (world.first, world.first, world.process()):
        await process.ingest.handle(messages)
    assert await world.totals() == LedgerTotals(stored=3, rejected=2)
    assert len(await world.stored()) == 1
    assert len(await world.said()) == 4
    assert len(await world.said(DEAD)) == 2
    assert await world.database["device_events"].count_documents({}) == 1


async def test_a_redelivered_batch_is_found_by_its_keys(world: World):
    """The cost does not grow with the history."""
    sn = await world.add(7)
    many = [(sn, {"properties": {"temperature": number}}) for number in range(500)]
    await world.say_all(many)
    await world.deal(len(many))
    await world.say_all(many[:3])
    messages = await world.fetch(3)
    await world.database.command("profile", 2)
    for _ in range(2):
        await world.first.ingest.handle(messages)
    await world.database.command("profile", 0)
    looked = await world.database["system.profile"].find().to_list(None)
    searches = [each for each in looked if "$documents" in str(each["command"].get("pipeline"))]
    assert searches
    for each in searches:
        assert each["docsExamined"] <= 2 * 3, each  # each of the 3 keys, and the record after it
    assert max(each.get("docsExamined", 0) for each in looked) < 100, looked  # of 503


async def test_two_processes_with_the_same_messages_count_them_once(world: World):
    """Replicas that hold the same and overlapping batches at once agree in the end."""
    sns = [await world.add(number) for number in range(1, 41)]
    await world.say_all((sn, {"properties": {"temperature": n}}) for sn in sns for n in range(5))
    await world.say_all(("NOBODY", {"properties": {}}) for _ in range(20))
    messages = await world.fetch(220)
    processes = [world.first, world.process(), world.process()]
    parts = [messages, messages[:150], messages[70:], messages]

    async def handle(index: int, part: list[Any]) -> None:
        while True:
            try:
                await processes[index % 3].ingest.handle(part)
            except Exception:  # noqa: BLE001 - as the consumer, which hands back and tries again
                await asyncio.sleep(0.05)
            else:
                return

    await asyncio.gather(*(handle(*one) for one in enumerate(parts)))
    assert await world.totals() == LedgerTotals(stored=200, rejected=20)
    assert len(await world.stored()) == 200
    assert len(await world.said()) == 200
    assert len(await world.said(DEAD)) == 20


async def test_batches_that_overlap_do_not_conflict_on_the_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Each of several batches in hand is one transaction, done once."""
    sns = [await world.add(number) for number in range(1, 4)]
    await world.say_all((sn, {"properties": {"temperature": n}}) for sn in sns for n in range(100))
    messages = await world.fetch(300)
    done = 0
    honest = world.mongo.transaction

    async def transaction(work: Callable[[Session], Awaitable[bool]], *, direct: bool) -> bool:
        async def wait_and_work(session: Session) -> bool:
            nonlocal done
            done += 1
            await asyncio.sleep(0.05)  # all three transactions are open now
            return await work(session)

        return await honest(wait_and_work, direct=direct)

    await world.first.ingest.handle(messages[:3])
    monkeypatch.setattr(world.mongo, "transaction", transaction)
    parts = [messages[3:100], messages[100:200], messages[200:]]
    await asyncio.gather(*map(world.first.ingest.handle, parts))
    assert (await world.totals()).stored == 300
    assert done == 3


async def test_a_batch_that_fails_half_way_is_done_whole_the_next_time(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Stored, and not announced because the bus is away: the repetition announces it."""
    sn = await world.add(7)
    await world.say_all((sn, {"properties": {"temperature": n}}) for n in range(3))
    messages = await world.fetch(3)

    async def fail(*_: Any) -> None:
        raise OSError("away")

    with monkeypatch.context() as patch:
        patch.setattr("services.device.telemetry.ingest.publish_each", fail)
        with pytest.raises(OSError, match="away"):
            await world.first.ingest.handle(messages)
    assert len(await world.stored()) == 3
    assert await world.said() == []
    assert await world.waiting() == 3
    await world.first.ingest.handle(messages)
    assert [body["properties"]["temperature"] for _, body in await world.said()] == [0, 1, 2]
    assert await world.totals() == LedgerTotals(stored=3, rejected=0)
    await world.drained()


async def test_data_storage_off_keeps_latest_values_only(world: World):
    """Without data storage a report is counted and shown, and not in history."""
    sn = await world.add(7, dataStorage=False)
    await world.say(sn, {"properties": {"temperature": 3}})
    await world.deal(1)
    assert await world.stored() == []
    assert await world.latest_of(7) == {"temperature": 3.0}
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


@pytest.mark.parametrize(
    ("shift", "word"), [(6 * 60_000, "in the future"), (-31 * 86_400_000, "retention")]
)
async def test_a_time_that_cannot_be_taken_is_refused(world: World, shift: int, word: str):
    """More than five minutes ahead, or older than the retention: DEAD says so."""
    sn = await world.add(7)
    await world.say(sn, {"ts": now_ms() + shift, "properties": {"temperature": 1}})
    await world.deal(1)
    (reason,) = await world.reasons()
    assert word in reason
    assert await world.totals() == LedgerTotals(stored=0, rejected=1)


@pytest.mark.parametrize("together", [True, False])
async def test_a_clock_that_is_ahead_does_not_block_later_reports(world: World, together: bool):
    """Later reports count as newer, though an earlier one has a later time; history keeps it."""
    sn = await world.add(7)
    ahead = now_ms() + 4 * 60_000
    first = {"ts": ahead, "properties": {"temperature": 1, "battery": 1, "limits": {"low": 1}}}
    later = {"properties": {"temperature": 2, "battery": 2, "limits": {"low": 2}}}
    if together:
        await world.say_all([(sn, first), (sn, later)])
        await world.deal(2)
    else:
        for report in (first, later):
            await world.say(sn, report)
            await world.deal(1)
    assert await world.latest_of(7) == {"temperature": 2.0, "battery": 2, "limits": {"low": 2}}
    device = await world.database["devices"].find_one({"_id": 7})
    assert device["electricity"] == 2
    assert device["lastUpdateTime"] < ahead - 60_000
    assert (await world.latest.find_report_times([7]))[7] < ahead - 60_000
    assert [KEY_FORMAT.unpack(row["_id"])[1] for row in await world.stored()][-1] == ahead


async def test_history_knows_when_a_report_arrived(world: World):
    """By the delay behind its time; a report without a time of its own has none."""
    sn, now = await world.add(7), now_ms()
    for ts in ({"ts": now - 3_600_000}, {}):
        await world.say(sn, ts | {"properties": {"temperature": 1}})
        await world.deal(1)
    late, punctual = await world.stored()
    assert 3_600_000 <= late["d"] < 3_660_000
    assert "d" not in punctual
    assert (await world.latest.find_arrival_times([7]))[7] >= now


async def test_the_record_has_the_time_of_a_report_after_a_late_one(world: World):
    """Also if both arrive within the seconds that save a write for each report."""
    sn, now = await world.add(7), now_ms()
    for ts in (now - 3_600_000, now):
        await world.say(sn, {"ts": ts, "properties": {"temperature": 1}})
        await world.deal(1)
    device = await world.database["devices"].find_one({"_id": 7})
    assert device["lastUpdateTime"] == now


async def test_late_readings_of_an_earlier_owner_are_no_latest_values(world: World):
    """The new application does not see values that the device measured before."""
    moment = now_ms() - 60_000
    sn = await world.add(7, ownedSince=moment)
    for ts in (moment - 1, moment):
        report = {"ts": ts, "properties": {"temperature": ts - moment, "battery": ts - moment + 5}}
        await world.say(sn, report)
    await world.say(sn, {"ts": moment - 9, "properties": {"interval": 1}})
    await world.deal(3)
    assert await world.latest_of(7) == {"temperature": 0.0, "battery": 5}
    assert len(await world.stored()) == 3


async def test_the_record_shows_the_facts_of_the_newest_report(world: World):
    """A late report from before does not set the battery back."""
    sn = await world.add(7)
    ts = now_ms()
    await world.say(sn, {"ts": ts, "properties": {"battery": 80, "firmware_version": "2"}})
    await world.deal(1)
    await world.say(sn, {"ts": ts - 60_000, "properties": {"battery": 90, "firmware_version": "1"}})
    await world.deal(1)
    device = await world.database["devices"].find_one({"_id": 7})
    assert (device["electricity"], device["firmwareVersion"]) == (80, "2")
    assert device["lastUpdateTime"] == ts
    await world.say_all((sn, {"ts": ts + n, "properties": {"battery": 70 - n}}) for n in (3, 1, 2))
    await world.deal(3)
    device = await world.database["devices"].find_one({"_id": 7})
    assert device["electricity"] == 67


async def test_the_place_follows_the_property_that_the_product_names(world: World):
    """The newest one that is a place; without both degrees within bounds there is none."""
    kinds = {"gps": "STRUCT", "gps.latitude": "DOUBLE", "gps.longitude": "DOUBLE"}
    properties = [
        {"id": key, "name": key, "accessMode": "R", "dataSpec": {"dataType": kind}}
        for key, kind in kinds.items()
    ]
    owner = Principal(PrincipalKind.APPLICATION, "default", "1")
    product = PutProduct(name="t", tsl={"properties": properties}, location_property="gps")
    facts = world.first.ingest.device_fields
    await ProductService(facts._products, TslStore(world.database)).put(owner, "tracker", product)
    facts._read = 0.0
    sn, ts = await world.add(7, "tracker"), now_ms()
    await world.say(sn, {"ts": ts, "properties": {"gps": {"latitude": 52.5, "longitude": 13.4}}})
    await world.deal(1)
    late = {"ts": ts - 60_000, "properties": {"gps": {"latitude": 1, "longitude": 2}}}
    await world.say(sn, late)
    await world.deal(1)
    device = await world.database["devices"].find_one({"_id": 7})
    assert device["location"] == {"latitude": 52.5, "longitude": 13.4}
    beyond = {"ts": ts + 1, "properties": {"gps": {"latitude": 91, "longitude": 2}}}
    await world.say(sn, beyond)
    await world.deal(1)
    device = await world.database["devices"].find_one({"_id": 7})
    assert device["location"] == {"latitude": 52.5, "longitude": 13.4}


async def test_a_stream_that_is_made_again_is_consumed_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Consumer deleted, then the whole stream: ingestion goes on by itself."""
    monkeypatch.setattr("libs.common.bus.consumer.REQUEST_RETRY_SECONDS", 0.05)
    sn = await world.add(7)
    consumer = BatchConsumer(
        bus=world.bus, stream=UPLINK, durable=DURABLE, handle=world.first.ingest.handle
    )
    job = asyncio.ensure_future(consumer.run())
    try:
        await world.say(sn, {"properties": {"temperature": 1}})
        await world.drained()
        await world.bus.js.delete_consumer(UPLINK, DURABLE)
        await world.say(sn, {"properties": {"temperature": 2}})
        await world.drained()
        await world.bus.js.delete_stream(UPLINK)
        async with asyncio.timeout(30):
            while UPLINK not in [info.config.name for info in await world.bus.js.streams_info()]:
                await asyncio.sleep(0.05)
        await world.say(sn, {"properties": {"temperature": 3}})
        await world.drained()
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    assert [row["p"]["temperature"] for row in await world.stored()] == [1, 2, 3]
    assert await world.totals() == LedgerTotals(stored=3, rejected=0)


async def test_an_older_report_never_overwrites_a_newer_fact(world: World):
    """Not by a second either, and not one that another process takes."""
    sn = await world.add(1)
    ts = now_ms() - 60_000
    await world.say(sn, {"ts": ts, "properties": {"firmware_version": "1"}})
    await world.deal(1)
    await world.say(sn, {"ts": ts + 2000, "properties": {"firmware_version": "2"}})
    await world.deal(1)
    await world.say(sn, {"ts": ts + 1000, "properties": {"firmware_version": "3"}})
    await world.process().ingest.handle(await world.fetch(1))
    device = await world.database["devices"].find_one({"_id": 1})
    assert device["firmwareVersion"] == "2"
