"""Messages on plain NATS wait in lanes of their tenants."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from nats.aio.msg import Msg

from libs.common.bus.accounts import UPLINK_SUBJECTS
from libs.common.jobs import cancel_and_wait
from services.gateway.relay import service as module
from services.gateway.relay.rules import MessageSender
from services.gateway.relay.service import BATCH_MESSAGES, MessageRelay, RelayQuota

TENANTS = {"A1": "loud", "A2": "loud", "B1": "quiet"}


class Quota(RelayQuota):
    """Lets everything pass."""

    def __init__(self, tenants: dict[str, str]) -> None:
        self._names = tenants

    def get_tenant(self, sender: MessageSender) -> str:
        return self._names.get(sender.user, "")

    def count_or_reject_message(self, pattern: str, sender: MessageSender, size: int) -> None:
        pass


class World:
    """A relay, and what it has written to the bus."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        client = SimpleNamespace(_send_command=self._write, _flush_pending=self._flush)
        self.tenants = dict(TENANTS)
        self.relay = MessageRelay(SimpleNamespace(client=client), Quota(self.tenants))  # type: ignore[arg-type]

    async def _write(self, frames: bytes) -> None:
        self.written.append(re.findall(r"thing\.(\w+)\.up.*\r\n(\d+)\r\n", frames.decode()))

    async def _flush(self) -> None:
        await asyncio.sleep(0)

    async def say(self, sn: str, number: int, padding: int = 0) -> None:
        data = str(number).encode().rjust(padding, b"0")
        message = Msg(None, f"thing.{sn}.up.report", "", data)  # type: ignore[arg-type]
        await self.relay._enqueue(UPLINK_SUBJECTS, message)

    async def passed_on(self) -> list[tuple[str, int]]:
        """Pass on everything, and return what was said, in order."""
        running = asyncio.ensure_future(self.relay.relay_forever())
        await self.relay.stop()
        await cancel_and_wait(running)
        return [(sn, int(number)) for frames in self.written for sn, number in frames]


async def test_a_flood_of_one_tenant_delays_no_other() -> None:
    """However much waits for one, the other's message is in the first write."""
    world = World()
    for number in range(5_000):
        await world.say("A1", number)
    await world.say("B1", 1)
    told = await world.passed_on()
    assert ("B1", 1) in told[:BATCH_MESSAGES]
    assert [number for sn, number in told if sn == "A1"] == list(range(5_000))


async def test_a_full_lane_drops_only_its_own_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other lanes have room of their own."""
    monkeypatch.setattr(module, "LANE_MESSAGES", 100)
    world = World()
    for number in range(150):
        await world.say("A1", number)
    await world.say("A2", 1)
    await world.say("B1", 1)
    told = await world.passed_on()
    assert [one for one in told if one[0] != "A1"] == [("B1", 1)]
    assert [number for sn, number in told if sn == "A1"] == list(range(100))


async def test_all_lanes_have_a_bound_and_each_a_few_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant with few messages finds room when others have used it up."""
    monkeypatch.setattr(module, "MAX_BYTES", 200_000)
    monkeypatch.setattr(module, "GUARANTEED_MESSAGES", 10)
    world = World()
    for number in range(300):
        await world.say("A1", number, 1_000)
    for number in range(20):
        await world.say("B1", number)
    told = await world.passed_on()
    assert len([sn for sn, _ in told if sn == "A1"]) < 150
    assert [number for sn, number in told if sn == "B1"] == list(range(10))


async def test_order_is_kept_when_a_tenant_becomes_known() -> None:
    """Messages follow those of the same device that wait since its tenant was unknown."""
    world = World()
    for number in range(500):
        await world.say("C1", number)
    world.tenants["C1"] = "late"
    for number in range(500, 1_000):
        await world.say("C1", number)
    assert await world.passed_on() == [("C1", number) for number in range(1_000)]
