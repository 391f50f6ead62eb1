"""What a device may send to bring ingest down, and does not."""

import json
import time
from typing import Any

import pytest

from tests.integration.device.reports.world import World

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


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("model", ["m", "generic"])
async def test_garbage_is_refused_while_a_good_report_beside_it_is_stored(
    world: World, name: str, model: str
):
    """Garbage ends in DEAD with a reason, and the good report of the same batch is stored."""
    channel, raw = GARBAGE[name]
    bad, good = await world.add(1, model), await world.add(2)
    await world.say(bad, raw, channel)
    await world.say(good, {"properties": {"temperature": 21.5}})
    await world.deal(2)
    totals = await world.totals()
    assert totals.stored + totals.rejected == 2
    assert {"temperature": 21.5} in [row["p"] for row in await world.stored()]
    assert len(await world.reasons()) == totals.rejected
    assert await world.waiting() == 0


@pytest.mark.parametrize(
    "properties",
    [
        {"battery": 1e300},
        {"battery": 2**63 - 1},
        {"battery": True},
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
    ],
    ids=str,
)
async def test_a_generic_device_may_report_anything_and_never_stops_ingest(
    world: World, properties: dict[str, Any]
):
    """An open report is stored or refused; whatever it holds, its batch is done."""
    sn = await world.add(1, "generic")
    await world.say(sn, {"properties": properties})
    await world.deal(1)
    await world.say(sn, {"ts": int(time.time() * 1000) - 5000, "properties": properties})
    await world.deal(1)
    totals = await world.totals()
    assert totals.stored + totals.rejected == 2
    assert await world.waiting() == 0
    await world.latest.of(1)
