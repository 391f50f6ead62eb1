"""Frames that are kept are read again with a codec that was mended."""

from typing import Any

from libs.common.clock import now_ms
from services.device.products.codec.known import KnownCodecs
from services.device.products.codec.store import identity_of
from services.device.reports.frames.store import FrameStore
from services.device.reports.history.partitions import Partitions
from services.device.reports.redecode.rereading import Rereader
from services.device.reports.redecode.schemas import Redecode
from services.device.reports.redecode.store import Job, RedecodeStore
from services.device.reports.redecode.working import RedecodeWorker
from tests.integration.device.reports.test_frames import SCRIPT, hear, put_codec
from tests.integration.device.reports.world import RETENTION_MS, World

WRONG = """
function decodeUplink(input) {
  const [kind, value] = input.bytes;
  if (value % 3 == 0) throw new Error('wrong');
  if (kind == 0) return {data: {interval: value}};
  return {data: {temperature: value * 2, battery: 1}};
}
"""


def worker(world: World) -> RedecodeWorker:
    rereader = Rereader(
        mongo=world.mongo,
        frames=FrameStore(world.database),
        partitions=Partitions(world.database),
        workers=world.workers,
        retention_ms=RETENTION_MS,
    )
    return RedecodeWorker(
        store=RedecodeStore(world.database),
        rereader=rereader,
        codecs=KnownCodecs(world.first.products),
        devices=world.first.devices,
        things=world.first.things,
        latest=world.latest,
        partitions=Partitions(world.database),
        settled_ms=0,
    )


async def begin(world: World, version: str, **more: Any) -> None:
    identity = dict(identity_of("default", "m"))
    now = now_ms()
    job = Job(identity=identity, state="RUNNING", version=version, started=now, end=now, **more)
    assert await RedecodeStore(world.database).begin(job)


async def through(world: World) -> Redecode:
    """Work until it has ended."""
    working = worker(world)
    while some := await working.store.running():
        for job in some:
            await working.turn(job)
    found = await working.store.find("default", "m")
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


async def test_it_ends_when_the_codec_is_changed_meanwhile_or_it_is_stopped(world: World):
    """What is through stays as it is."""
    await world.add(1)
    right = await put_codec(world, SCRIPT)
    await begin(world, "another")
    assert (await through(world)).state == "FAILED"
    await begin(world, right)
    assert await RedecodeStore(world.database).stop("default", "m")
    assert (await through(world)).state == "STOPPED"
