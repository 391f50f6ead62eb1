"""Benchmark of LoRaWAN uplinks, from `frames` calls through codecs to history.

One `device` and one `device-ingest` process on two processors handle concurrent calls of 500
frames, alternately alone and next to a tenant whose codec loops. Then all frames are decoded again
by another codec, alone and next to uplinks. Finally the time of a single decode is measured,
including the exchange with the codec process.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import MongoClient, WriteConcern

from bench.ingest import DEVICES, FIRST_ID, TENANT, drained
from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from libs.common.bus import Bus, RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.frames import MAX_FRAMES, DeviceFrame, Frame, Reception
from libs.common.integrations import IntegrationThings
from libs.common.tsl import parse_document, to_wire
from services.device.lorawan.codec_calls import CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import DECODER_ARGUMENTS_BY_ENTRY_POINT, find_entry_point
from services.device.lorawan.redecode_service import RedecodeJob
from services.device.things.codec_model import Codec
from services.device.things.product_model import ProductCodec

SERVER, MODEL, VERSION, LOOPING = "bench", "FRAMES", "v1.0", "looping"
FRAMES, ROUNDS, AT_ONCE = 40_000, 5, 8
UPLINKS, TICK = 1000, 0.1
"""Uplinks per second during the re-decode job, and seconds between calls."""
MAX_DELAY = 3.0
"""Tolerated delay of these uplinks, and of their storage, in seconds."""
BAR, BAR_DECODE, BAR_AGAIN, BAR_COST = 8000, 50.0, 16_667, 60.0
"""Targets: uplinks/s, µs per decode, re-decoded frames/s (ten million in ten minutes), µs each."""
KNOWN, IDLE = 3.0, 10.0
"""Seconds until all processes know a new codec, and seconds of the idle measurement."""
SCRIPT = """
function decodeUplink(input) {
  var bytes = input.bytes, data = {};
  for (var i = 0; i < bytes.length; ) {
    var channel = bytes[i++], type = bytes[i++];
    if (channel === 0x01 && type === 0x75) data.battery = bytes[i++];
    else if (channel === 0x03 && type === 0x67) { data.temperature = int16(bytes, i) / 10; i += 2; }
    else if (channel === 0x04 && type === 0x68) data.humidity = bytes[i++] / 2;
    else if (channel === 0x06 && type === 0x00) data.door = bytes[i++];
    else break;
  }
  return {data: data};
}
function int16(bytes, at) {
  var value = (bytes[at + 1] << 8) + bytes[at];
  return value > 0x7fff ? value - 0x10000 : value;
}
"""
LOOP = "function decodeUplink() { for (;;) {} }"
TSL: dict[str, Any] = {
    "version": VERSION,
    "properties": [
        {"id": name, "name": name, "accessMode": "R", "dataSpec": spec}
        for name, spec in {
            "temperature": {"dataType": "FLOAT", "validator": {"min": -40, "max": 85}},
            "humidity": {"dataType": "FLOAT", "validator": {"min": 0, "max": 100}},
            "battery": {"dataType": "INT", "validator": {"min": 0, "max": 100}},
            "door": {"dataType": "BOOL"},
        }.items()
    ],
}


def build_codec(script: str) -> Codec:
    """Return a codec with one script."""
    steps = find_entry_point({"script": ["decodeUplink"]}, DECODER_ARGUMENTS_BY_ENTRY_POINT)
    return Codec(scripts={"script": script}, decoder=steps)


def stored(codec: Codec) -> bytes:
    """Return a codec as its product stores it."""
    kept = ProductCodec(
        version=codec.version, scripts=codec.scripts, decoder=codec.decoder, encoder=[], examples=[]
    )
    return msgspec.json.encode(kept)


def payload(number: int) -> bytes:
    """Return the bytes of frame `number`."""
    temperature = (200 + number % 100).to_bytes(2, "little")
    return b"\x01\x75\x63\x03\x67" + temperature + bytes([4, 0x68, number % 200, 6, 0, number % 2])


def prepare(
    database: Any, tenant: str, first: int, devices: int, script: str, model: str = MODEL
) -> None:
    """Write a product with its codec and devices."""
    name = tenant if model == MODEL else f"{tenant}-{model}-"
    product = {"tenant": tenant, "model": model}
    document = msgspec.json.encode(to_wire(parse_document(TSL)))
    database.tsls.insert_one(
        {"_id": {**product, "version": VERSION}, "document": document, "hash": "frames"}
    )
    codec = build_codec(script)
    database.codecs.insert_one({"_id": product, "content": stored(codec)})
    now = datetime.now(UTC)
    fields = {
        "name": model,
        "snPrefixes": [],
        "deviceType": "COMMON",
        "currentVersion": VERSION,
        "versions": [VERSION],
        "codecVersion": codec.version,
        "createdAt": now,
        "updatedAt": now,
    }
    database.products.insert_one({"_id": product, **fields})
    database.devices.insert_many(
        {
            "_id": first + number,
            "tenant": tenant,
            "sn": f"{name}{number}",
            "snKey": f"{name}{number}".upper(),
            "identifier": f"{name}{number}",
            "integration": SERVER,
            "name": f"Sensor {number}",
            "model": model,
            "tslVersion": VERSION,
            "connectStatus": "DISCONNECT",
            "dataStorage": True,
            "createdAt": datetime.now(UTC),
        }
        for number in range(devices)
    )


def make_frames(
    tenant: str, numbers: range, devices: int, data: bytes | None = None
) -> list[DeviceFrame]:
    """Return frames, alternating between the devices."""
    ts = now_ms()
    gateways = [Reception(gateway="24e124fffef01234", rssi=-91, snr=7.5)]
    return [
        DeviceFrame(
            tenant=tenant,
            identifier=f"{tenant}{number % devices}",
            frame=Frame(
                port=85,
                data=payload(number) if data is None else data,
                counter=number // devices,
                session="01f3a2b4",
                ts=ts,
                data_rate="SF7BW125",
                frequency=868_100_000,
                gateways=gateways,
            ),
        )
        for number in numbers
    ]


def calls(first: int) -> Iterator[list[DeviceFrame]]:
    """Yield the calls of a round."""
    for start in range(first, first + FRAMES, MAX_FRAMES):
        yield make_frames(TENANT, range(start, start + MAX_FRAMES), DEVICES)


async def run_round(bus: Bus, database: Any, number: int) -> float:
    """Return the frames per second of a round, until all are in the history."""
    things = IntegrationThings(RpcClient(bus), SERVER)
    waiting = list(calls(number * FRAMES))
    before = database.frames.estimated_document_count()
    started = time.perf_counter()

    async def send() -> None:
        while waiting:
            answer = await things.send_frames(waiting.pop(0))
            if answer.refused:
                raise RuntimeError(answer.refused[0].reason)

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
    await drained(bus)
    rate = FRAMES / (time.perf_counter() - started)
    kept = database.frames.count_documents({"c": {"$exists": True}}) - before
    if kept < FRAMES:
        raise RuntimeError(f"{kept} of {FRAMES} frames are kept")
    return rate


async def redecode(servers: Stack, database: Any, places: int) -> tuple[float, float]:
    """Measure a re-decode job that changes all frames.

    Returns frames per second and processor seconds per frame, without the idle consumption.
    `places` is the number of decimal places that the new codec produces.
    """
    script = SCRIPT.replace("/ 10;", f"/ {10**places};")
    codec, product = build_codec(script), {"tenant": TENANT, "model": MODEL}
    database.codecs.update_one({"_id": product}, {"$set": {"content": stored(codec)}})
    database.products.update_one({"_id": product}, {"$set": {"codecVersion": codec.version}})
    await asyncio.sleep(KNOWN)
    before, started = servers.spent(), time.perf_counter()
    await asyncio.sleep(IDLE)
    idle = (servers.spent() - before) / (time.perf_counter() - started)
    before, started = servers.spent(), time.perf_counter()
    job = RedecodeJob(
        identity=product,
        state="RUNNING",
        version=codec.version,
        total=DEVICES,
        started=now_ms(),
        end=2**53,
    )
    database.redecodes.replace_one({"_id": product}, msgspec.to_builtins(job), upsert=True)
    while not (done := database.redecodes.find_one()).get("second"):
        if done["state"] != "RUNNING":
            raise RuntimeError(done["fault"])
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - started
    cost = servers.spent() - before - idle * seconds
    return done["changed"] / seconds, cost / done["changed"]


async def send_steadily(bus: Bus, tenant: str, first: int, devices: int, count: int) -> None:
    """Send frames, `count` every `TICK`, forever."""
    things = IntegrationThings(RpcClient(bus), SERVER)
    started = time.monotonic()
    for turn in itertools.count():
        number = first + turn * count
        answer = await things.send_frames(
            make_frames(tenant, range(number, number + count), devices)
        )
        if answer.refused:
            raise RuntimeError(answer.refused[0].reason)
        late = time.monotonic() - started - (turn + 1) * TICK
        if late > MAX_DELAY:
            raise RuntimeError(f"frames are sent {late:.1f} s late")
        await asyncio.sleep(max(0, -late))


@contextlib.asynccontextmanager
async def run_alongside(bus: Bus, job: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `job` during the block; raise its errors."""
    task = asyncio.ensure_future(job)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    waiting = (await bus.js.stream_info("UPLINK")).state.messages
    if waiting > UPLINKS * MAX_DELAY:
        raise RuntimeError(f"{waiting} frames wait to be stored")


async def decode() -> float:
    """Return the median time of a decode in µs, including the codec process."""
    codec = build_codec(SCRIPT)
    some = [CodecCall("decode", payload(number), 85, now_ms()) for number in range(MAX_FRAMES)]
    taken = []
    async with CodecWorkers() as workers:
        for _ in range(100):
            started = time.perf_counter()
            await workers.run(TENANT, codec, some)
            taken.append((time.perf_counter() - started) / MAX_FRAMES * 1e6)
    return median_value(taken)


async def measure(servers: Stack) -> list[Row]:
    """Run the rounds."""
    client: MongoClient[dict[str, Any]] = MongoClient(servers.mongo_url)
    database = client.get_database("bench", write_concern=WriteConcern("majority", j=True))
    for module in ("services.device.ingest_main", "services.device"):
        _, port = servers.start(module)
        await ready(port)
    prepare(database, TENANT, FIRST_ID, DEVICES, SCRIPT)
    prepare(database, LOOPING, FIRST_ID + DEVICES, 1, LOOP)
    bus = await Bus.connect(servers.nats_url, name="bench")
    await run_round(bus, database, 0)
    alone, looped = [], []
    for number in range(1, 2 * ROUNDS, 2):
        alone.append(await run_round(bus, database, number))
        async with run_alongside(bus, send_steadily(bus, LOOPING, number * FRAMES, 1, 1)):
            looped.append(await run_round(bus, database, number + 1))
    again, cost = await redecode(servers, database, 2)
    first = (2 * ROUNDS + 1) * FRAMES
    async with run_alongside(bus, send_steadily(bus, TENANT, first, DEVICES, int(UPLINKS * TICK))):
        busy, busy_cost = await redecode(servers, database, 3)
    await bus.drain()
    client.close()
    return [
        _row("frames: decoded uplinks/s into history", median_value(alone), BAR),
        _row("frames: the same beside a codec that loops", median_value(looped), BAR),
        _row("frames: read again and written otherwise, frames/s", again, BAR_AGAIN),
        _row(f"frames: the same beside {UPLINKS:,} uplinks/s", busy, BAR_AGAIN),
        _cost("frames: one that is read again, processor time of all processes", cost),
        _cost(f"frames: the same beside {UPLINKS:,} uplinks/s", busy_cost),
    ]


def _row(name: str, rate: float, bar: int) -> Row:
    return Row(name, f"{rate:,.0f}", bar=f">= {bar:,}", ok=rate >= bar)


def _cost(name: str, seconds: float) -> Row:
    ok = seconds * 1e6 <= BAR_COST
    return Row(name, f"{seconds * 1e6:.1f} µs", bar=f"<= {BAR_COST:.0f} µs", ok=ok)


async def run() -> list[Row]:
    """Run the benchmark."""
    taken = await decode()
    name = f"frames: a decode in batches of {MAX_FRAMES}, median"
    async with stack() as servers:
        rows = await measure(servers)
    ok = taken <= BAR_DECODE
    return [*rows, Row(name, f"{taken:.1f} µs", bar=f"<= {BAR_DECODE:.0f} µs", ok=ok)]
