"""What a device may send to bring ingest down, and does not."""

import asyncio
import json
import time
from typing import Any

import pytest
from bson.errors import InvalidDocument
from nats.errors import MaxPayloadError
from pymongo.errors import AutoReconnect

from libs.common.bus import DEAD, UPLINK, BatchConsumer
from libs.common.errors import TooLarge, Unavailable
from libs.common.tsl import CompiledTsl, Report
from services.device.telemetry.batch import Batch, build_batch
from services.device.telemetry.ledger import LedgerTotals
from services.device.telemetry.uplink import read_uplink
from tests.integration.device.telemetry.world import DURABLE, RETENTION_MS, World

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


@pytest.mark.parametrize(
    "failure",
    [
        KeyError("unforeseen"),
        TooLarge("unforeseen"),
        Unavailable("unforeseen"),
        InvalidDocument("unforeseen"),
        AutoReconnect("unforeseen"),
        MaxPayloadError("unforeseen"),
        TimeoutError("unforeseen"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_message_that_breaks_ingest_is_alone_in_dead_after_some_tries(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
):
    """Whatever the failure is, it is told apart from its neighbours."""
    bad, good = await world.add(1), await world.add(2)
    honest = CompiledTsl.decode_report

    def broken(self: CompiledTsl, raw: bytes) -> Report:
        if b"13" in raw:
            raise failure
        return honest(self, raw)

    monkeypatch.setattr(CompiledTsl, "decode_report", broken)
    await world.say(bad, {"properties": {"temperature": 13}})
    await world.say_all([(good, {"properties": {"temperature": n}}) for n in range(4)])
    consumer = BatchConsumer(
        bus=world.bus, stream=UPLINK, durable=DURABLE, handle=world.first.ingest.handle
    )
    monkeypatch.setattr("libs.common.bus.consumer.REQUEST_RETRY_SECONDS", 0.01)
    job = asyncio.ensure_future(consumer.run())
    try:
        await world.drained()
    finally:
        job.cancel()
    assert await world.totals() == LedgerTotals(stored=4, rejected=1)
    (reason,) = await world.reasons()
    assert type(failure).__name__ in reason


async def test_while_the_store_is_away_nobody_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """However often a message comes again: it is stored when the store is back."""
    sn = await world.add(1)
    await world.say(sn, {"properties": {"temperature": 1}})
    messages = await world.fetch(1)

    async def away(*_: object, **__: object) -> None:
        raise AutoReconnect("away")

    with monkeypatch.context() as broken:
        broken.setattr(world.mongo, "transaction", away)
        broken.setattr(world.mongo, "ping", away)
        for _ in range(5):
            with pytest.raises(AutoReconnect):
                await world.first.ingest.handle(messages)
    await world.first.ingest.handle(messages)
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)
    assert await world.reasons() == []


async def test_faults_and_payloads_of_any_size_in_json_do_not_stop_ingest(world: World):
    """Faults with long paths that JSON escapes, and a payload that grows sixfold."""
    sn = await world.add(1, "generic")
    deep: Any = None
    for _ in range(12):
        deep = {"\x01" * 120: deep}
    faulty = {f"{n}": deep for n in range(24)}
    good = await world.add(2)
    await world.say(sn, {"properties": faulty | {"ok": 1}})
    await world.say(sn, {"properties": faulty})
    await world.say(good, b"\x01" * 200_000)
    await world.say(good, {"properties": {"temperature": 1}})
    await world.deal(4)
    assert await world.totals() == LedgerTotals(stored=2, rejected=2)
    rejected = [body for subject, body in await world.said() if subject.endswith("1.rejected")]
    assert [len(body["faults"]) for body in rejected] == [len(rejected[0]["faults"])] * 2
    assert rejected[0]["faults"][-1]["reason"].endswith("more")
    (_, garbage) = [body for _, body in await world.said(DEAD)]
    assert (garbage["base64"], garbage["truncated"]) == (True, True)


@pytest.mark.parametrize("stored_first", [True, False])
async def test_a_message_with_another_result_at_redelivery_counts_once(
    world: World, stored_first: bool
):
    """The device was deleted or added after the first delivery, whose acknowledgement was lost."""
    sn = await world.add(1)
    device = await world.database["devices"].find_one({"_id": 1})
    if not stored_first:
        await world.database["devices"].delete_one({"_id": 1})
    await world.say(sn, {"properties": {"temperature": 1}})
    first = await world.fetch(1)
    ingest = world.first.ingest
    await ingest._store_and_announce(*await sorted_by(world, first), [])
    before = await world.totals()
    if stored_first:
        await world.database["devices"].delete_one({"_id": 1})
    else:
        await world.database["devices"].insert_one(device | {"_id": 2})
    await first[0].nak()
    await world.process().ingest.handle(await world.fetch(1))
    assert await world.totals() == before == LedgerTotals(int(stored_first), int(not stored_first))
    assert len(await world.stored()) == 1


async def sorted_by(world: World, messages: list[Any]) -> tuple[list[Any], Batch]:
    """Uplinks and batch of messages, as ingest makes them."""
    uplinks = [read_uplink(message) for message in messages]
    things = await world.first.things.find_by_sn({uplink.sn for uplink in uplinks})
    return uplinks, build_batch(uplinks, things, RETENTION_MS)
