"""What a device may send, and what of refused messages is kept."""

import asyncio

from libs.common.bus import DEAD, EVENTS, RpcServer
from libs.common.contracts.auth import BlockUser, Done
from libs.common.contracts.limits import Limits
from services.device.telemetry.ledger import LedgerTotals
from tests.integration.device.telemetry.world import World


async def test_too_many_messages_are_refused_and_their_device_is_shut_out(world: World):
    """Those of one device alone: each ends in DEAD with the reason, and makes no event."""
    loud, quiet = await world.add(1), await world.add(2)
    out: asyncio.Queue[str] = asyncio.Queue()

    async def shut_out(request: BlockUser) -> Done:
        out.put_nowait(request.user)
        return Done()

    rpc = RpcServer(world.bus, "auth")
    rpc.offer("shut_out", BlockUser, shut_out)
    await rpc.start()
    process = world.process(limits=Limits(each_messages=2))
    await world.say_all((loud, {"properties": {"temperature": n}}) for n in range(60))
    await world.say(quiet, {"properties": {"temperature": 1}})
    await process.ingest.handle(await world.fetch(61))
    async with asyncio.timeout(30):
        assert await out.get() == loud
    await rpc.stop()
    totals = await process.ledger.totals()
    assert totals.stored + totals.rejected == 61
    assert 23 <= totals.stored <= 40
    reasons = await world.reasons()
    assert len(reasons) == totals.rejected
    assert set(reasons) == {"eachMessages: more than 2 messages per second of this device"}
    assert not [subject for subject, _ in await world.said(EVENTS) if "rejected" in subject]
    assert await world.latest_of(2) == {"temperature": 1}
    await world.drained()


async def test_redelivered_messages_are_not_counted_again(world: World):
    """While a store is unavailable, the same messages are delivered repeatedly."""
    sn = await world.add(1)
    process = world.process(limits=Limits(each_messages=1))
    await world.say_all((sn, {"properties": {"temperature": n}}) for n in range(20))
    for message in await world.fetch(20):
        await message.nak()
    for _ in range(3):
        again = await world.fetch(20)
        for message in again:
            await message.nak()
    await process.ingest.handle(await world.fetch(20))
    assert await process.ledger.totals() == LedgerTotals(stored=20, rejected=0)


async def test_rejected_messages_are_kept_up_to_a_number_of_bytes(world: World):
    """Then one entry gives the number of the others, and the ledger counts them all."""
    sn = await world.add(1)
    process = world.process(limits=Limits(dead_bytes=3000))
    for _ in range(20):
        await world.say(sn, b"x" * 700)
    await process.ingest.handle(await world.fetch(20))
    assert await process.ledger.totals() == LedgerTotals(stored=0, rejected=20)
    bodies = [body for _, body in await world.said(DEAD)]
    assert len([body for body in bodies if body["payload"]]) == 3
    (summary,) = [body for body in bodies if not body["payload"]]
    assert "exceed 3000 bytes" in summary["reason"]
