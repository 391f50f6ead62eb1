"""From the frames of network servers to history: read by codecs, each once."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.frames import Frame, Reception
from libs.common.tsl import parse_document
from services.device.lorawan.codec_calls import BatchResult, CodecCall
from services.device.lorawan.codec_runner import CodecBudgets, CodecWorkers
from services.device.lorawan.codec_scripts import DECODER_ARGUMENTS_BY_ENTRY_POINT, find_entry_point
from services.device.lorawan.frame_decoder import BUDGET_SPENT_REASON
from services.device.lorawan.frame_store import FRAMES_COLLECTION
from services.device.telemetry.folded_values import MAX_TOTAL_BYTES, TOO_LARGE_REASON
from services.device.telemetry.ledger import LedgerTotals
from services.device.telemetry.partitions import KEY_FORMAT
from services.device.things.codec_model import Codec
from services.device.things.product_model import ProductCodec
from tests.integration.device.telemetry.world import TSL, World

DAY_MS = 86_400_000
SCRIPT = """
function decodeUplink(input) {
  const [kind, value, ...rest] = input.bytes;
  if (kind == 0) throw new Error('odd');
  if (kind == 9) for (;;) {}
  if (kind == 2) return {data: {interval: 'often'}};
  if (kind == 3) return {data: {}};
  const ago = (at) => input.recvTime / 1000 - 60 * (at + 1);
  const history = rest.map((one, at) => ({timestamp: ago(at), temperature: one}));
  if (kind == 4) return {data: {history}};
  return {data: {temperature: value}};
}
"""


async def put_codec(world: World, script: str = SCRIPT, tenant: str = "default") -> str:
    """Give the product `m` a codec; return its version."""
    steps = find_entry_point(
        {"script": list(DECODER_ARGUMENTS_BY_ENTRY_POINT)[:1]}, DECODER_ARGUMENTS_BY_ENTRY_POINT
    )
    version = Codec(scripts={"script": script}, decoder=steps).version
    codec = ProductCodec(
        version=version, scripts={"script": script}, decoder=steps, encoder=[], examples=[]
    )
    identity = {"tenant": tenant, "model": "m"}
    await world.database["codecs"].replace_one(
        {"_id": identity}, {"content": msgspec.json.encode(codec)}, upsert=True
    )
    await world.database["products"].update_one(
        {"_id": identity}, {"$set": {"codecVersion": version}}, upsert=True
    )
    return version


async def hear(world: World, sn: str, counter: int, data: bytes, **more: Any) -> None:
    """Put a frame of a device on `UPLINK`."""
    frame = Frame(port=85, data=data, counter=counter, **{"session": "s", **more})
    await world.say(sn, msgspec.json.encode(frame), "frame")


async def kept(world: World) -> list[dict[str, Any]]:
    return list(await world.database[FRAMES_COLLECTION].find().sort("_id", 1).to_list(None))


async def test_a_frame_becomes_the_report_that_its_codec_reads(world: World):
    """At the time of the network, in history, in the latest values and as an event; it is kept."""
    sn, ts = await world.add(7), now_ms() - 5
    version = await put_codec(world)
    heard = [Reception(gateway="g1", rssi=-80, snr=7.5)]
    await hear(world, sn, 1, b"\x01\x15", ts=ts, gateways=heard)
    await world.deal(1)
    assert [row["p"] for row in await world.stored()] == [{"temperature": 21.0}]
    assert await world.latest_of(7) == {"temperature": 21.0}
    ((subject, body),) = await world.said()
    assert (subject, body["ts"]) == ("event.default.device.7.reported", ts)
    (row,) = await kept(world)
    assert row["_id"] == (await world.stored())[0]["_id"]
    assert msgspec.json.decode(row["f"], type=Frame).gateways == heard
    assert row["c"] == f"{version}/v1.0"
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


async def test_a_property_beyond_the_limit_of_latest_values_is_rejected_before_history(
    world: World,
):
    """Of a report, of a frame and of what the device remembered; other properties are stored."""
    sn = await world.add(7)
    await put_codec(world)
    await world.latest.apply([(7, 1, {f"k{number}": "x" * 250_000}) for number in range(16)])
    await world.latest.apply([(7, 2, {"interval": 1, "rest": "x" * (MAX_TOTAL_BYTES - 4_000_100)})])
    await world.say(sn, {"properties": {"interval": 2, "firmware_version": "y" * 600}})
    await world.say(sn, {"properties": {"firmware_version": "y" * 600}})
    await hear(world, sn, 1, b"\x01\x15")
    await hear(world, sn, 2, b"\x04\x00\x16")
    await world.deal(4)
    (stored,) = await world.stored()
    assert stored["p"] == {"interval": 2}
    found = await world.latest_of(7)
    assert (found["interval"], len(found)) == (2, 18)
    assert (await world.reasons())[0] == f"properties.firmware_version: {TOO_LARGE_REASON}"
    assert (await world.reasons())[1] == f"properties.temperature: {TOO_LARGE_REASON}"
    assert [row["w"] for row in await kept(world)] == [
        f"properties.temperature: {TOO_LARGE_REASON}"
    ] * 2
    events = [subject.rpartition(".")[2] for subject, _ in await world.said()]
    assert sorted(events) == ["rejected", "rejected", "rejected", "reported"]
    assert await world.totals() == LedgerTotals(stored=2, rejected=2)


class Slow(CodecWorkers):
    """Codecs of a tenant that do not answer yet."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = 0, asyncio.Event()

    def is_late(self, tenant: str, asked: float) -> bool:
        return tenant == "default" and self.begun > 0

    async def run_within(
        self, seconds: float, tenant: str, codec: Codec, calls: Sequence[CodecCall]
    ) -> BatchResult:
        if tenant == "default":
            self.begun += len(calls)
            await self.released.wait()
        return await super().run_within(seconds, tenant, codec, calls)


async def test_a_slow_codec_delays_no_other_tenant_and_keeps_the_order_of_its_devices(world: World):
    """Messages of its devices wait for its frames; everything else is stored with its batch."""
    slow = await world.add(7, integration="lora")
    other = await world.add(8, tenant="other", integration="lora")
    plain = await world.add(9)
    for tenant in ("default", "other"):
        await put_codec(world, tenant=tenant)
    async with Slow() as workers:
        reader = replace(world.first.ingest.frames, workers=workers)
        ingest = replace(world.first.ingest, frames=reader)
        await hear(world, slow, 1, b"\x01\x15")
        await hear(world, slow, 2, b"\x01\x16")
        await world.say(plain, {"properties": {"interval": 6}})
        await ingest.handle(await world.fetch(3))
        assert [row["p"] for row in await world.stored()] == [{"interval": 6}]
        await world.say(slow, {"properties": {"interval": 5}})
        await hear(world, other, 1, b"\x01\x18")
        await ingest.handle(await world.fetch(2))
        assert [KEY_FORMAT.unpack(row["_id"])[0] for row in await world.stored()] == [8, 9]
        assert workers.begun == 2
        workers.released.set()
        await world.drained()
    told = [body for subject, body in await world.said() if ".7." in subject]
    assert [one["properties"] for one in told] == [
        {"temperature": 21.0},
        {"temperature": 22.0},
        {"interval": 5},
    ]
    assert await world.totals() == LedgerTotals(stored=5, rejected=0)


async def test_a_frame_of_a_gateway_with_a_wrong_clock_is_of_its_arrival(world: World):
    """Beyond the retention of its product, or more than five minutes ahead; none is refused."""
    sn, now = await world.add(7), now_ms()
    await put_codec(world)
    week = {"$set": {"historyDays": 7}}
    await world.database["products"].update_one({"_id.model": "m"}, week)
    right = [now - 6 * DAY_MS, now + 4 * 60_000]
    for counter, ts in enumerate([0, -5, now - 8 * DAY_MS, now + 6 * 60_000, 10**15, *right]):
        await hear(world, sn, counter, b"\x01\x15", ts=ts)
    await world.deal(7)
    first, *others, last = sorted(KEY_FORMAT.unpack(row["_id"])[1] for row in await world.stored())
    assert [first, last] == right
    assert [now <= ts <= now_ms() for ts in others] == [True] * 5
    assert await world.reasons() == []


async def test_a_frame_that_cannot_be_read_is_in_dead_and_kept(world: World):
    """Whatever is wrong with it; others of its batch are stored."""
    sn, other = await world.add(7), await world.add(8, model="bare")
    await put_codec(world)
    await world.say(sn, b"{", "frame")
    await hear(world, sn, 1, b"\x00")
    await hear(world, sn, 2, b"\x02")
    await hear(world, other, 3, b"\x01\x15")
    await hear(world, sn, 4, b"\x01\x15")
    await world.deal(5)
    assert [row["p"] for row in await world.stored()] == [{"temperature": 21.0}]
    reasons = [
        "is not a valid frame: Input data was truncated",
        "the codec Error: odd",
        "properties.interval: must be an integer",
        "the product has no codec",
    ]
    assert sorted(await world.reasons()) == sorted(reasons)
    assert [row.get("w") for row in await kept(world)] == [*reasons[1:3], None, reasons[3]]
    assert await world.totals() == LedgerTotals(stored=1, rejected=4)


async def test_a_memory_of_no_time_is_no_fault_of_ours(world: World):
    """It is refused as any other nonsense, and counted once."""
    sn = await world.add(7)
    await put_codec(
        world, "function decodeUplink() { return {data: {history: [{timestamp: -1e308}]}} }"
    )
    await hear(world, sn, 1, b"\x01")
    await world.deal(1)
    assert len(await world.reasons()) == 1
    assert await world.totals() == LedgerTotals(stored=0, rejected=1)


async def test_a_frame_without_values_is_taken(world: World):
    """It is kept and counted as stored; nobody is told."""
    sn = await world.add(7)
    await put_codec(world)
    await hear(world, sn, 1, b"\x03")
    await world.deal(1)
    assert (await world.stored(), await world.said(), await world.reasons()) == ([], [], [])
    assert len(await kept(world)) == 1
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


async def test_a_frame_that_comes_again_is_one_report(world: World):
    """In the same batch or a later one, out of order, through two gateways with other times."""
    sn, ts = await world.add(7), now_ms() - 5000
    await put_codec(world)
    await hear(world, sn, 2, b"\x01\x16", ts=ts)
    await hear(world, sn, 2, b"\x01\x16", ts=ts + 40)
    await hear(world, sn, 1, b"\x01\x15", ts=ts - 1000)
    await world.deal(3)
    await hear(world, sn, 1, b"\x01\x15")
    await hear(world, sn, 3, b"\x01\x17", ts=ts + 1000)
    await hear(world, sn, 2, b"\x01\x16", ts=ts + 2000)
    await world.deal(3)
    assert [row["p"]["temperature"] for row in await world.stored()] == [21.0, 22.0, 23.0]
    assert await world.latest_of(7) == {"temperature": 23.0}
    assert len(await world.said()) == 3
    assert await world.totals() == LedgerTotals(stored=6, rejected=0)
    await world.drained()


async def test_a_batch_with_frames_that_is_dealt_with_again_changes_nothing(world: World):
    """As after a kill before it was acknowledged, with the copies in it."""
    sn = await world.add(7)
    await put_codec(world)
    for data in (b"\x01\x15", b"\x01\x15", b"\x00"):
        await hear(world, sn, data[0], data)
    messages = await world.fetch(3)
    for _ in range(2):
        await world.first.ingest.handle(messages)
        assert [row["p"] for row in await world.stored()] == [{"temperature": 21.0}]
        assert len(await kept(world)) == 2
        assert await world.totals() == LedgerTotals(stored=2, rejected=1)


async def test_a_counter_that_begins_anew_is_another_frame(world: World):
    """A device without joins counts from 0 again in the same session, more than a day later."""
    sn, ts = await world.add(7), now_ms() - 5 * DAY_MS
    await put_codec(world)
    for days in (0, 2, 4):
        await hear(world, sn, 0, bytes([1, days]), ts=ts + days * DAY_MS)
        await world.deal(1)
    for days in (0, 4):
        await hear(world, sn, 0, bytes([1, days]), ts=ts + days * DAY_MS + 1)
    await world.deal(2)
    assert [row["p"]["temperature"] for row in await world.stored()] == [0.0, 2.0, 4.0]
    assert await world.totals() == LedgerTotals(stored=5, rejected=0)


async def test_past_readings_are_stored_with_their_own_times(world: World):
    """History contains each once, even if it is sent repeatedly. No event is published."""
    sn, ts = await world.add(7), now_ms() // 1000 * 1000
    await put_codec(world)
    await hear(world, sn, 1, b"\x04\x00\x15\x16", ts=ts)
    await hear(world, sn, 2, b"\x04\x00\x15\x16", ts=ts)
    await world.deal(2)
    await hear(world, sn, 3, b"\x04\x00\x15\x16\x17", ts=ts)
    await world.deal(1)
    assert [row["p"]["temperature"] for row in await world.stored()] == [23.0, 22.0, 21.0]
    assert await world.said() == []
    assert await world.latest_of(7) == {"temperature": 21.0}
    assert await world.totals() == LedgerTotals(stored=3, rejected=0)


async def test_a_device_that_keeps_no_data_keeps_no_frames(world: World):
    """Only what tells that one comes again."""
    sn = await world.add(7, dataStorage=False)
    await put_codec(world)
    for _ in range(2):
        await hear(world, sn, 1, b"\x01\x15")
    await world.deal(2)
    assert await world.stored() == []
    assert [set(row) for row in await kept(world)] == [{"_id", "i", "at"}]
    assert len(await world.said()) == 1


async def test_a_codec_that_loops_is_soon_asked_no_more(world: World):
    """Its frames are refused, the processor is left to the others, and they are stored."""
    sn, other = await world.add(7), await world.add(8, tenant="other")
    await put_codec(world)
    await put_codec(world, tenant="other")
    reader = world.first.ingest.frames
    world.first.ingest.frames = replace(reader, budgets=CodecBudgets(codec_rate=0.0))
    for counter in range(12):
        await hear(world, sn, counter, b"\x09")
        await hear(world, other, counter, b"\x01\x15")
        await world.deal(2)
    refused = await world.reasons()
    assert "the codec takes too long" in refused
    assert len(refused) == 12
    assert refused[-1] == f"the codec {BUDGET_SPENT_REASON}"
    assert await world.totals() == LedgerTotals(stored=12, rejected=12)


async def test_nothing_is_kept_of_the_bytes_of_a_frame_with_a_write_only_value(world: World):
    """Its good values are stored; when it is read again nothing changes, since it cannot be."""
    document = copy.deepcopy(TSL)
    document["properties"][1]["accessMode"] = "W"  # interval
    content = {"hash": "w", "document": msgspec.json.encode(parse_document(document))}
    await world.database["tsls"].replace_one({"_id.model": "m"}, content)
    await put_codec(world, SCRIPT.replace("{interval: 'often'}", "{interval: 77, temperature: 21}"))
    sn = await world.add(7)
    await hear(world, sn, 1, bytes([2, 77]))
    await world.deal(1)

    assert [row["p"] for row in await world.stored()] == [{"temperature": 21}]
    (frame,) = await kept(world)
    assert "f" not in frame
    assert "interval: is write-only" in frame["w"]
    assert await world.latest_of(7) == {"temperature": 21}
