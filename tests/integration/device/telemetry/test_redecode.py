"""Frames that are kept are read again with a codec that was mended."""

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.contracts.frames import Frame
from libs.common.jobs import run_in_background
from libs.common.store.mongo import StoreError
from libs.common.tsl import parse_document
from services.device.lorawan import redecode_job, redecoder
from services.device.lorawan.codec_cache import CodecCache
from services.device.lorawan.frame_store import FrameStore
from services.device.lorawan.redecode_job import RedecodeWorker
from services.device.lorawan.redecode_service import RedecodeJob, RedecodeStore
from services.device.lorawan.redecoder import Redecoder
from services.device.lorawan.schemas import RedecodeProgress
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import KEY_FORMAT, Partitions
from services.device.things.product_store import product_id
from tests.integration.device.telemetry.test_frames import SCRIPT, hear, put_codec
from tests.integration.device.telemetry.world import RETENTION_MS, TSL, World, _property

WRONG = """
function decodeUplink(input) {
  const [kind, value] = input.bytes;
  if (value % 3 == 0) throw new Error('wrong');
  if (kind == 0) return {data: {interval: value}};
  return {data: {temperature: value * 2, battery: 1}};
}
"""


def worker(world: World) -> RedecodeWorker:
    redecoder = Redecoder(
        mongo=world.mongo,
        frames=FrameStore(world.mongo),
        partitions=Partitions(world.mongo.direct),
        workers=world.workers,
        outbox=world.outbox,
        retention_ms=RETENTION_MS,
    )
    return RedecodeWorker(
        store=RedecodeStore(world.database, world.commands.wakeups),
        redecoder=redecoder,
        codecs=CodecCache(world.first.products),
        devices=world.first.devices,
        things=world.first.things,
        latest=LatestValues(world.mongo.direct),
        device_fields=DeviceFieldUpdater(world.first.devices, world.latest, world.first.products),
        partitions=Partitions(world.mongo.direct),
        settled_ms=0,
    )


async def begin(world: World, version: str, **more: Any) -> None:
    identity = dict(product_id("default", "m"))
    now = now_ms()
    job = RedecodeJob(
        identity=identity, state="RUNNING", version=version, started=now, end=now, **more
    )
    assert await RedecodeStore(world.database, world.commands.wakeups).begin(job)


async def take_turn(one: RedecodeWorker, tenant: str = "default") -> bool:
    """Give the next redecoding of a tenant a turn; return whether there was one."""
    job = await one.store.find_next_job(tenant, one.settled_ms)
    if job is not None:
        await one.run_turn(job)
    return job is not None


async def through(world: World) -> RedecodeProgress:
    """Work until it has ended."""
    one = worker(world)
    while await take_turn(one):
        pass
    found = await one.store.find("default", "m")
    assert found is not None
    return found


async def rows(world: World) -> dict[tuple[int, int], Any]:
    """History by device and time."""
    found = await world.stored()
    keys = [(row["_id"][:8], row["_id"][8:16]) for row in found]
    return {
        (int.from_bytes(device), int.from_bytes(ts)): row["p"]
        for (device, ts), row in zip(keys, found, strict=True)
    }


async def fill(world: World, first: int, ts: int) -> None:
    """Frames of two devices, among them some with memories and some that cannot be read."""
    for number in range(60):
        data = bytes([number % 5, number, 30 + number, 40 + number])
        sn = f"SN{first + number % 2}"
        await hear(world, sn, number, data, ts=ts + 120_000 * number)
    await world.deal(60)


async def test_history_becomes_that_of_the_right_codec(world: World):
    """Value by value as if it had been there from the start, latest values, too; nobody is told."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    for number in (1, 2, 11, 12):
        await world.add(number)
    wrong = await put_codec(world, WRONG)
    await fill(world, 1, ts)
    right = await put_codec(world)
    world.first = world.process()
    await fill(world, 11, ts)
    said = len(await world.said())
    await begin(world, right, dry=True, total=2, devices=[1, 2])
    before = await rows(world)
    dry = await through(world)
    assert (dry.state, dry.read, await rows(world) == before) == ("DONE", 60, True)
    assert len(dry.differences) == 20
    await begin(world, right, total=4)
    done = await through(world)
    assert (done.state, done.done, done.changed) == ("DONE", 4, dry.changed)
    found = await rows(world)
    for ours, other in ((1, 11), (2, 12)):
        mended = {ts: value for (device, ts), value in found.items() if device == ours}
        assert mended == {ts: value for (device, ts), value in found.items() if device == other}
        assert mended
        assert await world.latest_of(ours) == await world.latest_of(other)
    assert len(await world.said()) == said
    await begin(world, right)
    assert (await through(world)).changed == 0
    assert wrong != right
    assert await batteries(world) == {}


async def test_differences_beyond_the_shown_ones_are_written_unread(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Changed, equal and missing values become right, and are counted as if they had been read."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    nothing = WRONG.replace("throw new Error('wrong')", "return {data: {}}")
    await put_codec(world, nothing)
    for number in range(12):
        await hear(world, "SN1", number, bytes([number % 2, number]), ts=ts + number)
    await world.deal(12)
    mended = WRONG.replace("value % 3 == 0", "false").replace("value * 2", "value")
    right = await put_codec(world, mended)
    monkeypatch.setattr(redecoder, "MAX_DIFFERENCES", 0)
    await begin(world, right, dry=True)
    dry = await through(world)
    await begin(world, right)
    done = await through(world)
    assert (dry.changed, done.changed, done.differences) == (8, 8, [])
    assert await rows(world) == {
        (1, ts + at): {"temperature": float(at), "battery": 1} if at % 2 else {"interval": at}
        for at in range(12)
    }
    assert await world.latest_of(1) == {"temperature": 11.0, "battery": 1, "interval": 10}


class NoisyCodecs(CodecCache):
    """Codecs of which those of the tenant `noisy` never come."""

    async def of(self, products: Any) -> Any:
        if products[0][0] == "noisy":
            await asyncio.Event().wait()
        return await super().of(products)


async def test_redecodings_of_one_tenant_do_not_delay_those_of_others(world: World):
    """Twelve products of one tenant wait, and the product of another is decoded again."""
    await world.add(1)
    await put_codec(world, WRONG)
    await hear(world, "SN1", 1, b"\x01\x07", ts=now_ms() - 10_000_000)
    await world.deal(1)
    right, now = await put_codec(world), now_ms()
    store = RedecodeStore(world.database, world.commands.wakeups)
    for number in range(12):
        identity = dict(product_id("noisy", f"m{number}"))
        job = RedecodeJob(identity=identity, state="RUNNING", version=right, started=now, end=now)
        assert await store.begin(job)
    await begin(world, right, total=1)
    noisy = replace(worker(world), codecs=NoisyCodecs(world.first.products))
    async with asyncio.timeout(30), run_in_background(noisy.run()):
        while (found := await store.find("default", "m")) and found.state == "RUNNING":
            await asyncio.sleep(0.05)
    assert found
    assert (found.state, found.changed) == ("DONE", 1)


async def batteries(world: World) -> dict[int, int]:
    """What device records show of batteries."""
    found = world.database["devices"].find({"electricity": {"$exists": True}})
    return {row["_id"]: row["electricity"] async for row in found}


class Away(LatestValues):
    """A process that ends when it is to make latest values anew."""

    async def rebuild(self, *_: Any) -> None:
        raise ConnectionError


async def test_a_process_that_ends_between_history_and_latest_values_leaves_nothing_out(
    world: World,
):
    """The next one makes the latest values anew, though history is right already."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    await hear(world, "SN1", 1, b"\x01\x07", ts=ts)
    await world.deal(1)
    assert (await world.latest_of(1), await batteries(world)) == (
        {"temperature": 14.0, "battery": 1},
        {1: 1},
    )
    right = await put_codec(world)
    await begin(world, right, total=1)
    ended = replace(worker(world), latest=Away(world.database))
    with pytest.raises(ConnectionError):
        await take_turn(ended)
    assert list((await rows(world)).values()) == [{"temperature": 7.0}]
    await through(world)
    assert (await world.latest_of(1), await batteries(world)) == ({"temperature": 7.0}, {})


async def test_one_that_is_begun_after_a_process_has_ended_makes_up_for_it(world: World):
    """Also where the one before was stopped meanwhile, and the device had no values at all."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    await hear(world, "SN1", 1, b"\x01\x03", ts=ts)
    await world.deal(1)
    right = await put_codec(world)
    await begin(world, right, total=1)
    ended = replace(worker(world), latest=Away(world.database))
    with pytest.raises(ConnectionError):
        await take_turn(ended)
    assert await ended.store.stop("default", "m")
    await begin(world, right, total=1, dry=True)
    await through(world)
    assert await world.latest_of(1) == {}
    await begin(world, right, total=1)
    await through(world)
    assert await world.latest_of(1) == {"temperature": 3.0}


async def test_another_process_may_end_between_two_turns_of_one(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """What the other has read without making latest values anew is made anew, too."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    for number in (1, 2, 4, 5):
        await hear(world, "SN1", number, bytes([1, number]), ts=ts + number)
    await world.deal(4)
    await begin(world, await put_codec(world), total=1)
    monkeypatch.setattr(redecoder, "FRAMES_PER_BATCH", 2)
    monkeypatch.setattr(redecode_job, "TURN_SECONDS", -1.0)
    one, ended = worker(world), replace(worker(world), latest=Away(world.database))
    await take_turn(one)
    with pytest.raises(ConnectionError):
        await take_turn(ended)
    assert await world.latest_of(1) == {"temperature": 10.0, "battery": 1}
    while await take_turn(one):
        pass
    assert await world.latest_of(1) == {"temperature": 5.0}


async def test_a_device_with_many_frames_is_read_in_several_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Each goes on where the last one was."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    for number in range(10):
        await hear(world, "SN1", number, bytes([1, number + 1]), ts=ts + number)
    await world.deal(10)
    right = await put_codec(world)
    await begin(world, right, total=1)
    monkeypatch.setattr(redecoder, "FRAMES_PER_BATCH", 3)
    monkeypatch.setattr(redecode_job, "TURN_SECONDS", -1.0)
    one, reads = worker(world), []
    while await take_turn(one):
        found = await one.store.find("default", "m")
        assert found
        reads.append((found.read, found.done))
    assert reads[:4] == [(3, 0), (6, 0), (9, 0), (10, 1)]
    assert sorted(p["temperature"] for p in (await rows(world)).values()) == list(range(1, 11))
    assert await world.latest_of(1) == {"temperature": 10.0}


@pytest.mark.parametrize("frames_per_batch", [1, 2000])
async def test_a_past_reading_of_two_frames_stays(
    world: World, monkeypatch: pytest.MonkeyPatch, frames_per_batch: int
):
    """It is deleted with the last frame that contains it, also in a later batch."""
    monkeypatch.setattr(redecoder, "FRAMES_PER_BATCH", frames_per_batch)
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    script = SCRIPT.replace("'often'", "input.fPort")
    await put_codec(world, script.replace("kind == 4", "kind >= 4"))
    data = bytes([0, 50])
    for number, kind in enumerate((4, 4, 5)):
        await hear(world, "SN1", number, bytes([kind]) + data, ts=ts)
    await world.deal(3)
    remembered = {(1, ts - 60_000): {"temperature": 50.0}}
    assert await rows(world) == remembered
    await begin(world, await put_codec(world, script), total=1)
    await through(world)
    assert await rows(world) == remembered | {(1, ts): {"temperature": 0.0}}
    await begin(world, await put_codec(world, script.replace("kind == 4", "kind == 40")), total=1)
    await through(world)
    assert set(await rows(world)) == {(1, ts)}


async def test_changed_reports_are_published_on_request(world: World):
    """Each changed report is published once with its original time; unchanged ones are not."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    await hear(world, "SN1", 1, b"\x01\x07", ts=ts)
    await hear(world, "SN1", 2, b"\x01\x00", ts=ts + 1)
    await world.deal(2)
    before = len(await world.said())
    await begin(world, await put_codec(world), total=1, tell=True)
    await through(world)
    said = [body for _, body in (await world.said())[before:]]
    assert [(one["ts"], one["properties"]) for one in said] == [
        (ts, {"temperature": 7.0}),
        (ts + 1, {"temperature": 0.0}),
    ]
    assert len({one["eventId"] for one in said}) == 2


LARGE = """function decodeUplink(input) {
  return {data: {temperature: input.bytes[1], firmware_version: '\u3042'.repeat(%d)}};
}"""


async def test_large_values_are_written_and_not_shown(world: World):
    """MongoDB takes 16 MiB in one update, and in one document."""
    await world.add(1)
    await put_codec(world, LARGE % 1)
    ts = now_ms() - 10_000_000
    for number in range(150):
        await hear(world, "SN1", number, bytes([1, number]), ts=ts + number)
    await world.deal(150)
    await begin(world, await put_codec(world, LARGE % 60_000), total=1)
    done = await through(world)
    assert (done.state, done.changed) == ("DONE", 150)
    assert {difference.reason for difference in done.differences} == {"too large to be shown"}
    assert {len(row["firmware_version"]) for row in (await rows(world)).values()} == {60_000}


async def test_frames_of_earlier_owners_and_beyond_retention_are_skipped(world: World):
    """They are neither shown nor written, and no deleted week of history is created again."""
    ts = now_ms() - 10_000_000
    await world.add(1, ownedSince=ts + 500)
    await put_codec(world, WRONG)
    for number in range(2):
        await hear(world, "SN1", number, bytes([1, 20]), ts=ts + 1000 * number)
    await hear(world, "SN1", 2, bytes([1, 20]), ts=now_ms() - RETENTION_MS + 60_000)
    await world.deal(3)
    await begin(world, await put_codec(world), total=1)
    one = worker(world)
    short = replace(one.redecoder, retention_ms=20_000_000)
    while await take_turn(replace(one, redecoder=short)):
        pass
    found = await one.store.find("default", "m")
    assert found is not None
    assert [each.ts for each in found.differences] == [ts + 1000]


async def test_a_number_that_becomes_a_boolean_is_read_otherwise(world: World):
    """Though 1 and true are equal in Python."""
    version = await put_codec(world, "function decodeUplink() { return {data: {x: 1}} }")
    await world.add(1)
    for name, kind in (("v1.0", "INT"), ("v2.0", "BOOL")):
        document = TSL | {"version": name, "properties": [_property("x", kind, "R")]}
        stored = {"document": msgspec.json.encode(parse_document(document)), "hash": name}
        key = {"_id": {"tenant": "default", "model": "m", "version": name}}
        await world.database["tsls"].update_one(key, {"$set": stored}, upsert=True)
    world.first = world.process()
    await hear(world, "SN1", 1, b"\x01", ts=now_ms() - 1000)
    await world.deal(1)
    await world.database["devices"].update_one({"_id": 1}, {"$set": {"tslVersion": "v2.0"}})
    world.first = world.process()
    await begin(world, version, total=1)
    await through(world)
    assert [row["x"] is True for row in (await rows(world)).values()] == [True]


async def test_one_that_cannot_be_written_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """It waits alone."""
    await world.add(1)
    await begin(world, await put_codec(world), total=1)
    other = RedecodeJob(
        identity=dict(product_id("other", "m")), state="RUNNING", version="", started=0, end=0
    )
    one = worker(world)
    assert await one.store.begin(other)
    turn, seen = RedecodeWorker.run_turn, asyncio.Event()

    async def failing(self: RedecodeWorker, job: RedecodeJob) -> bool:
        if job.tenant == "other":
            raise StoreError("cannot be written")
        seen.set()
        return await turn(self, job)

    monkeypatch.setattr(RedecodeWorker, "run_turn", failing)
    async with asyncio.timeout(30), run_in_background(one.run()):
        await seen.wait()


async def test_a_job_ends_when_the_codec_changes_or_a_user_stops_it(world: World):
    """Finished devices stay changed."""
    await world.add(1)
    right = await put_codec(world, SCRIPT)
    await begin(world, "another")
    assert (await through(world)).state == "FAILED"
    await begin(world, right)
    assert await RedecodeStore(world.database, world.commands.wakeups).stop("default", "m")
    assert (await through(world)).state == "STOPPED"


async def test_a_job_ends_after_too_many_published_reports(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """All tenants share the stream of events; finished devices stay changed."""
    ts = now_ms() // 1000 * 1000 - 10_000_000
    await world.add(1)
    await put_codec(world, WRONG)
    for number in range(6):
        await hear(world, "SN1", number, bytes([1, 3 * number + 1]), ts=ts + number)
    await world.deal(6)
    before = len(await world.said())
    for module in (redecoder, redecode_job):
        monkeypatch.setattr(module, "MAX_REPUBLISHED", 3)
    monkeypatch.setattr(redecoder, "FRAMES_PER_BATCH", 2)
    await begin(world, await put_codec(world), total=1, tell=True)
    ended = await through(world)
    assert (ended.state, ended.told, ended.read) == ("FAILED", 4, 4)
    assert ended.fault
    assert ended.fault.endswith(
        "were published again, the maximum: select fewer devices or less time"
    )
    assert len(await world.said()) - before == 4


def many(first: int, numbers: range, ts: int) -> list[OutgoingMessage]:
    """Frames of ten devices from `first` on, one a second."""
    return [
        OutgoingMessage(
            uplink_subject(f"SN{first + number % 10}", "frame"),
            msgspec.json.encode(
                Frame(
                    port=85,
                    data=bytes([number // 10 % 5, number % 250, number % 40, number % 50]),
                    counter=number,
                    session="s",
                    ts=ts + 1000 * number,
                )
            ),
        )
        for number in numbers
    ]


async def hear_many(world: World, frames: list[OutgoingMessage]) -> None:
    """Put frames on `UPLINK` and deal with them."""
    for start in range(0, len(frames), 2000):
        some = frames[start : start + 2000]
        await world.bus.publish(some)
        await world.deal(len(some))


RIGHT = SCRIPT.replace("temperature: one", "temperature: ago(at) % 97")
"""What a device remembers of a moment is always the same."""
DOUBLED = RIGHT.replace("% 97", "% 89").replace(
    "temperature: value", "temperature: 2 * value, battery: 1"
)


async def told(world: World, first: int) -> dict[int, list[str]]:
    """History of ten devices: what there is of each moment."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in await world.stored():
        device, ts, _ = KEY_FORMAT.unpack(row["_id"])
        if first <= device < first + 10:
            found[10 * ts + device - first].append(str(row["p"]))
    return {key: sorted(values) for key, values in found.items()}


@pytest.mark.slow
async def test_a_late_codec_correction_gives_the_same_values(world: World):
    """History and latest values are equal to those of the right codec, while more frames arrive."""
    count, more = 100_000, 20_000
    ts = now_ms() // 1000 * 1000 - (count + more) * 1000
    for number in range(1, 21):
        await world.add(number)
    await put_codec(world, DOUBLED)
    await hear_many(world, many(1, range(count), ts))
    right = await put_codec(world, RIGHT)
    await begin(world, right, total=20)
    settled = replace(worker(world), settled_ms=5000)

    async def turns() -> None:
        while (found := await settled.store.find("default", "m")) and found.state == "RUNNING":
            if not await take_turn(settled):
                await asyncio.sleep(0.5)

    meanwhile = many(1, range(count, count + more), ts)
    await asyncio.gather(turns(), hear_many(world, meanwhile))
    await hear_many(world, many(11, range(count + more), ts))
    mended = await told(world, 1)
    assert mended == await told(world, 11)
    assert len(mended) > count / 3
    for number in range(1, 11):
        assert await world.latest_of(number) == await world.latest_of(number + 10)
    done = await settled.store.find("default", "m")
    assert done
    assert (done.state, done.done) == ("DONE", 20)
