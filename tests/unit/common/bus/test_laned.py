"""Messages of a stream that wait for their tenant's turn."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

from libs.common.bus.laned import (
    MAX_PARKED_MESSAGES,
    MAX_QUEUED_MESSAGES,
    LanedMessages,
    event_tenant,
)


class Client:
    """Keeps what is written to the connection."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def _send_command(self, frames: bytes) -> None:
        self.written += [frame for frame in frames.split(b"PUB ") if frame]

    async def _flush_pending(self) -> None:
        pass

    def back(self) -> list[str]:
        """The replies of messages that were handed back."""
        return [one.split()[0].decode() for one in self.written if b"-NAK" in one]


class Handler:
    """Handles batches when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.fails: set[str] = set()

    async def __call__(self, messages: list[Any]) -> bool:
        tenant = event_tenant(messages[0])
        assert {event_tenant(message) for message in messages} == {tenant}
        self.batches.append([message.reply for message in messages])
        if tenant in self.gates:
            await self.gates[tenant].wait()
        return tenant not in self.fails


def message(tenant: str, sequence: int, data: bytes = b"{}") -> Any:
    metadata = SimpleNamespace(stream="S", sequence=SimpleNamespace(stream=sequence))
    return SimpleNamespace(
        subject=f"event.{tenant}.device.1.reported",
        data=data,
        reply=f"{tenant}-{sequence}",
        metadata=metadata,
    )


def laned(client: Client, handler: Handler, batch: int = 10, workers: int = 2) -> LanedMessages:
    bus: Any = SimpleNamespace(client=client, connected=True)
    return LanedMessages(bus, "test", event_tenant, handler, batch, workers)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_tenant_with_many_messages_does_not_delay_another() -> None:
    client, handler = Client(), Handler()
    handler.gates["loud"] = asyncio.Event()
    work = laned(client, handler)
    await work.put([message("loud", number) for number in range(1_000)])
    await work.put([message("quiet", 1_000)])
    await settle()
    assert [len(batch) for batch in handler.batches] == [10, 1]
    handler.gates["loud"].set()
    await settle()
    await work.finish(1)


async def test_batches_of_a_tenant_come_one_after_the_other_and_in_order() -> None:
    client, handler = Client(), Handler()
    handler.gates["a"] = asyncio.Event()
    work = laned(client, handler)
    await work.put([message("a", number) for number in range(25)])
    await settle()
    assert len(handler.batches) == 1
    handler.gates["a"].set()
    await settle()
    handled = [reply for batch in handler.batches for reply in batch]
    assert handled == [f"a-{number}" for number in range(25)]


ALONE = MAX_QUEUED_MESSAGES // 2
"""Messages that a tenant may have here while no other one has any."""


async def test_messages_without_room_are_handed_back_and_later_ones_wait_for_them() -> None:
    client, handler = Client(), Handler()
    handler.gates["a"] = asyncio.Event()
    work = laned(client, handler)
    await work.put([message("a", number) for number in range(ALONE + 12)])
    assert client.back() == [f"a-{ALONE}"]
    handler.gates["a"].set()
    while sum(map(len, handler.batches)) < ALONE:
        await settle()
    client.written.clear()
    await work.put([message("a", 50_000)])
    await settle()
    assert sum(map(len, handler.batches)) == ALONE
    await work.put([message("a", ALONE)])
    await settle()
    handled = [reply for batch in handler.batches for reply in batch]
    assert handled == [f"a-{number}" for number in (*range(ALONE + 12), 50_000)]
    await work.put([message("a", 50_001)])
    await settle()
    assert (handler.batches[-1], client.back()) == (["a-50001"], [])


async def test_a_tenant_leaves_as_much_room_as_it_has_and_never_less_than_a_share() -> None:
    client, handler = Client(), Handler()
    handler.gates |= {"a": asyncio.Event(), "b": asyncio.Event()}
    work = laned(client, handler)
    await work.put([message("a", number) for number in range(MAX_QUEUED_MESSAGES)])
    await work.put(
        [message("b", MAX_QUEUED_MESSAGES + number) for number in range(MAX_QUEUED_MESSAGES)]
    )
    waiting = Counter(event_tenant(lane) for lane in work._lanes)
    in_hand, waiting_of_a = 10, ALONE - 10
    assert waiting == {"a": waiting_of_a, "b": (MAX_QUEUED_MESSAGES - waiting_of_a) // 2 - in_hand}
    for gate in handler.gates.values():
        gate.set()
    await work.finish(5)


async def test_more_later_messages_than_a_lane_may_hold_come_again_in_order() -> None:
    """Nothing that comes after a message that was handed back is handled before it."""
    client, handler = Client(), Handler()
    handler.fails.add("a")
    work = laned(client, handler, batch=5_000)
    await work.put([message("a", 0)])
    await settle()
    handler.fails.clear()
    later = [message("a", number) for number in range(1, MAX_PARKED_MESSAGES + 11)]
    await work.put(later)
    assert client.back() == ["a-0", *(one.reply for one in later[MAX_PARKED_MESSAGES:])]
    await work.put(later[MAX_PARKED_MESSAGES:])
    await work.put([message("a", 0), message("a", 9_000)])
    await work.put(later[MAX_PARKED_MESSAGES:])
    await settle()
    handled = [reply for batch in handler.batches[1:] for reply in batch]
    assert handled == [f"a-{number}" for number in (*range(MAX_PARKED_MESSAGES + 11), 9_000)]


async def test_a_failed_batch_comes_again_before_later_messages_of_its_tenant() -> None:
    client, handler = Client(), Handler()
    handler.fails.add("a")
    work = laned(client, handler)
    await work.put([message("a", 1)])
    await settle()
    assert client.back() == ["a-1"]
    handler.fails.clear()
    await work.put([message("a", 2), message("b", 3)])
    await settle()
    assert handler.batches == [["a-1"], ["b-3"]]
    await work.put([message("a", 1)])
    await settle()
    assert handler.batches[2:] == [["a-1", "a-2"]]


async def test_messages_that_wait_are_kept_from_coming_again() -> None:
    client, handler = Client(), Handler()
    handler.gates["a"] = asyncio.Event()
    work = laned(client, handler, batch=1)
    await work.put([message("a", 1), message("a", 2)])
    await work.extend()
    assert [one.split()[0] for one in client.written if b"+WPI" in one] == [b"a-2"]
    handler.gates["a"].set()
    await settle()


async def test_messages_that_wait_are_handed_back_when_the_consumer_ends() -> None:
    client, handler = Client(), Handler()
    handler.gates["a"] = asyncio.Event()
    work = laned(client, handler, batch=1)
    await work.put([message("a", 1), message("a", 2)])
    await settle()
    ending = asyncio.ensure_future(work.finish(5))
    await settle()
    handler.gates["a"].set()
    await ending
    assert handler.batches == [["a-1"]]
    assert client.back() == ["a-2"]
