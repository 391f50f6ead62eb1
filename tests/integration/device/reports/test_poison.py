"""What a device may send to bring ingest down, and does not."""

import asyncio
import json
import time
from typing import Any

import pytest

from libs.common.bus import DEAD, UPLINK, BatchConsumer
from libs.common.tsl import CompiledTsl, Report
from services.device.reports.ledger import Totals
from tests.integration.device.reports.world import DURABLE, World

DEEP = b"[" * 120_000 + b"]" * 120_000
BIG = 2**64 - 1

GARBAGE: dict[str, tuple[str, bytes]] = {
    "no JSON": ("report", b"\x00\xff{"),
    "empty": ("report", b""),
    "deeply nested report": ("report", b'{"properties":{"temperature":' + DEEP + b"}}"),
    "deeply nested extra": ("report", b'{"x":' + DEEP + b',"properties":{"temperature":1}}'),
    "deeply nested event": ("event", b'{"eventId":"alarm","outputs":{"level":' + DEEP + b"}}"),
    "deeply nested reply": ("reply", b'{"commandId":1,"status":"SUCCESS","outputs":' + DEEP + b"}"),
    "deeply nested reply extra": ("reply", b'{"x":' + DEEP + b',"commandId":1,"status":"SUCCESS"}'),
    "huge command id": ("reply", b'{"commandId":%d,"status":"SUCCESS"}' % BIG),
    "huge text id": ("reply", b'{"commandId":"%s","status":"SUCCESS"}' % (b"9" * 60)),
    "negative huge id": ("reply", b'{"commandId":"-%s","status":"FAILED"}' % (b"9" * 30)),
    "bad utf-8 reply": ("reply", b'{"commandId":1,"status":"\xff"}'),
    "negative ts": ("report", b'{"ts":-5,"properties":{"temperature":1}}'),
    "huge ts": ("report", b'{"ts":%d,"properties":{"temperature":1}}' % BIG),
    "unknown keys": (
        "report",
        json.dumps({"properties": {f"k{n}": 1 for n in range(20_000)}}).encode(),
    ),
    "nul key": ("report", b'{"properties":{"a\\u0000b":1}}'),
    "surrogate key": ("report", b'{"properties":{"a\\ud800b":1}}'),
    "surrogate value": ("report", b'{"properties":{"firmware_version":"\\ud800"}}'),
    "surrogate event": ("event", b'{"eventId":"\\ud800","outputs":{}}'),
    "surrogate output": ("event", b'{"eventId":"alarm","outputs":{"\\ud800":1}}'),
    "surrogate status": ("reply", b'{"commandId":1,"status":"\\ud800"}'),
    "surrogate error": ("reply", b'{"commandId":1,"status":"FAILED","error":"\\ud800"}'),
    "surrogate id": ("reply", b'{"commandId":"\\ud800","status":"FAILED"}'),
    "control payload": ("report", b"\x01" * 200_000),
    "strange channel": ("a.b.c", b"{}"),
}


OPEN: list[dict[str, Any]] = [
    {"battery": 1e300},
    {"battery": 2**63 - 1},
    {"battery": [1]},
    {"firmware_version": "x" * 60_000},
    {"a": {"b": {"c": 1}}},
    {"a": {}},
    {"0": 1},
    {"a": {"0": 1}},
    {"": 1, "ok": 2},
    {"$x": 1, "ok": 2},
    {"a.b": 1, "ok": 2},
    {"a": {"b.c": 1}, "ok": 2},
]


@pytest.mark.parametrize("model", ["m", "generic"])
async def test_garbage_is_refused_while_a_good_report_beside_it_is_stored(world: World, model: str):
    """Garbage ends in DEAD with a reason, and the good report of the same batch is stored."""
    good = await world.add(1000)
    for number, (channel, raw) in enumerate(GARBAGE.values(), 1):
        await world.say(await world.add(number, model), raw, channel)
    await world.say(good, {"properties": {"temperature": 21.5}})
    await world.deal(len(GARBAGE) + 1)
    refused = {
        subject.rpartition(".")[2]: body["reason"] for subject, body in await world.said(DEAD)
    }
    taken = {"unknown keys", "surrogate event"} if model == "generic" else set()
    for number, name in enumerate(GARBAGE, 1):
        assert name in taken or refused.get(f"SN{number}"), name
    totals = await world.totals()
    assert (totals.stored + totals.rejected, totals.rejected) == (len(GARBAGE) + 1, len(refused))
    assert {"temperature": 21.5} in [row["p"] for row in await world.stored()]
    await world.drained()


async def test_an_open_device_may_report_anything_and_never_stops_ingest(world: World):
    """An open report is stored or refused; whatever it holds, its batch is done."""
    past = int(time.time() * 1000) - 5000
    for number, properties in enumerate(OPEN, 1):
        sn = await world.add(number, "generic")
        await world.say_all([(sn, {"properties": properties}), (sn, {"properties": properties})])
        await world.say_all([(sn, {"properties": properties, "ts": past})])
    await world.deal(2 * len(OPEN))
    await world.deal(len(OPEN))
    totals = await world.totals()
    assert totals.stored + totals.rejected == 3 * len(OPEN)
    await world.drained()
    for number in range(1, len(OPEN) + 1):
        await world.latest_of(number)


async def test_a_message_that_breaks_ingest_is_alone_in_dead_after_some_tries(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """What no code of ours can deal with is told apart from its neighbours."""
    bad, good = await world.add(1), await world.add(2)
    honest = CompiledTsl.decode_report

    def broken(self: CompiledTsl, raw: bytes) -> Report:
        if b"13" in raw:
            raise KeyError("unforeseen")
        return honest(self, raw)

    monkeypatch.setattr(CompiledTsl, "decode_report", broken)
    await world.say(bad, {"properties": {"temperature": 13}})
    await world.say_all([(good, {"properties": {"temperature": n}}) for n in range(4)])
    consumer = BatchConsumer(
        bus=world.bus, stream=UPLINK, durable=DURABLE, handle=world.first.ingest.handle
    )
    monkeypatch.setattr("libs.common.bus.consumer.BACKOFF", 0.01)
    job = asyncio.ensure_future(consumer.run())
    try:
        await world.drained()
    finally:
        job.cancel()
    assert await world.totals() == Totals(stored=4, rejected=1)
    (reason,) = await world.reasons()
    assert "unforeseen" in reason
