"""25 generated sequences with MongoDB, compared with a plain computation."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from libs.common.bus import UPLINK, RpcClient
from libs.common.limits.tenants import LimitsCache
from services.device.alarms import evaluator as evaluating
from services.device.alarms import row_sources, store
from services.device.alarms.evaluator import Evaluator
from services.device.alarms.events import EvaluationRequest, build_request_message
from services.device.alarms.model import (
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
    to_document,
)
from services.device.alarms.row_sources import HistoryReader, UplinkReader
from services.device.alarms.rule_index import RuleIndex
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.telemetry.batch_store import DELAY_FIELD
from services.device.telemetry.device_events import EVENTS_COLLECTION
from services.device.telemetry.partitions import Partitions, history_key, partition_number
from tests.integration.conftest import MongoOf
from tests.integration.device.telemetry.world import World, running
from tests.servers import Servers
from tests.unit.device.alarms.sequences import FIRST, Clear, Reading, Sequence, expected, generate

SEQUENCES, AT_ONCE = 25, 16
RETENTION_DAYS = 30
_clock: ContextVar[int] = ContextVar("clock")
"""ms: the present time of a sequence."""


@pytest_asyncio.fixture(scope="module")
async def world(servers: Servers, module_database: str, mongo_of: MongoOf) -> AsyncIterator[World]:
    """Return MongoDB and NATS without the service, whose sweep would use the real time."""
    async with running(servers, mongo_of(module_database)) as found:
        yield found


@pytest.fixture
def platform(world: World, monkeypatch: pytest.MonkeyPatch) -> "Platform":
    """Return the evaluation at a time that a test sets."""
    clock: Callable[[], int] = _clock.get
    for module in (evaluating, row_sources, store):
        monkeypatch.setattr(module, "now_ms", clock)
    monkeypatch.setattr(row_sources, "ROWS_PER_READ", 7)  # most evaluations read history in parts
    monkeypatch.setattr(evaluating, "MAX_HISTORY_ROWS", 14)
    monkeypatch.setattr(evaluating, "RETRY_SECONDS", 0)
    return platform_of(world)


@dataclass
class Platform:
    """Evaluation and its storage."""

    world: World
    alarms: AlarmStore
    evaluator: Evaluator
    partitions: Partitions


def platform_of(world: World) -> Platform:
    devices, limits = world.first.devices, LimitsCache(RpcClient(world.bus))
    rules = RuleStore(world.mongo.database, limits, world.commands.wakeups)
    alarms = AlarmStore(world.mongo, world.outbox, devices, world.commands.wakeups)
    history, uplink = HistoryReader(world.mongo, RETENTION_DAYS), UplinkReader(world.bus, [UPLINK])
    evaluator = Evaluator(rules, alarms, history, devices, world.latest, uplink)
    return Platform(world, alarms, evaluator, Partitions(world.mongo.database))


@dataclass
class Device:
    """A device with a rule, and its state."""

    platform: Platform
    id: int
    sequence: Sequence
    rule: Rule = field(init=False)
    index: RuleIndex = field(init=False)
    arrived: list[Reading] = field(default_factory=list)
    clears: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rule = Rule(
            id=self.id, tenant="default", name="r", severity="MAJOR", device=self.id,
            condition=self.sequence.condition, created_at=0, updated_at=0, changed=0,
        )  # fmt: skip

    async def run(self) -> None:
        """Run the steps, and compare after each."""
        self.restart(None)
        condition = self.sequence.condition
        for number, step in enumerate(self.sequence.steps):
            if number in self.sequence.restarts:
                self.restart(await self.state())
            if isinstance(step, Clear):
                await self.clear(step.arrival)
            elif isinstance(condition, SilenceCondition):
                await self.hear(step)
            else:
                await self.evaluate(step)
        await self.sweep(self.sequence.end)
        await self.compare(self.sequence.end)

    def restart(self, state: State | None) -> None:
        """Drop everything that is not stored."""
        self.index = RuleIndex()
        self.index.put(self.rule)
        if state is not None:
            self.index.set_state(state)

    async def evaluate(self, step: list[Reading]) -> None:
        """Store readings, and evaluate the requested ones."""
        for reading in step:
            await self.store(reading)
        _clock.set(step[-1].arrival)
        await self.evaluate_all([request for reading in step for request in self.requests(reading)])
        await self.sweep(step[-1].arrival)
        await self.compare(step[-1].arrival)

    async def hear(self, step: list[Reading]) -> None:
        """Record reports of a device that is watched for silence, and evaluate."""
        for reading in step:
            _clock.set(reading.arrival)
            if not self.arrived:
                await self.platform.alarms.create_silence_states(
                    self.rule, [self.id], reading.arrival
                )
            await self.sweep(reading.arrival)
            self.arrived.append(reading)
            report = self.id, min(reading.ts, reading.arrival), {"t": reading.value}
            arrivals = {self.id: reading.arrival}
            await self.platform.world.latest.apply([report], arrivals)
            await self.evaluate_all(self.requests(reading))
            await self.compare(reading.arrival)

    async def store(self, reading: Reading) -> None:
        """Write what ingest writes."""
        self.arrived.append(reading)
        partitions, week = self.platform.partitions, partition_number(reading.ts)
        document: dict[str, Any] = {"_id": history_key(self.id, reading.ts, reading.sequence)}
        if delay := reading.arrival - reading.ts:
            document[DELAY_FIELD] = delay
        if isinstance(self.sequence.condition, EventCondition):
            document |= {"e": reading.value, "o": {}}
            await self.platform.world.database[EVENTS_COLLECTION].insert_one(document)
        else:
            await partitions.ensure([week])
            await partitions.collection(week).insert_one(document | {"p": {"t": reading.value}})

    def requests(self, reading: Reading) -> list[tuple[str, bytes]]:
        """Return the evaluation requests of a reading."""
        about, value = ("default", self.id, "m"), reading.value
        if isinstance(self.sequence.condition, EventCondition):
            found = list(self.index.find_changes_by_event(about, value, reading.ts))
        else:
            found = list(self.index.find_changes_by_report(about, {"t": value}, reading.ts))
        if not found:
            return []
        earliest = self.index.mark_uncertain_and_get_earliest(found[0], self.id, 1.0, reading.ts)
        pointer = EvaluationRequest(
            tenant="default",
            device_id=self.id,
            values={self.id: found[0].value},
            ts=reading.ts,
            sequence=reading.sequence,
            received=reading.arrival,
            earliest=earliest,
        )
        said = build_request_message(pointer, f"{self.id}-{reading.sequence}", {})
        return [(said.subject, said.payload)]

    async def evaluate_all(self, events: list[tuple[str, bytes]]) -> None:
        """Evaluate until no request is repeated, then update the index of ingest."""
        while await self.platform.evaluator.evaluate_events("default", events):
            pass
        self.index.expire_uncertain_states(2.0)
        await self.read_state()

    async def sweep(self, until: int) -> None:
        """Evaluate the state when it is due."""
        while (state := await self.read_state()).due is not None and state.due <= until:
            _clock.set(max(state.due, state.changed))
            await self.platform.evaluator.evaluate_due("default", [(self.rule, state)])
        _clock.set(until)

    async def clear(self, now: int) -> None:
        """Clear the alarm as a user does."""
        await self.sweep(now)
        state = await self.read_state()
        if state.alarm is not None:
            await self.platform.alarms.clear([state.alarm], "1", None)
            self.clears.append(now)
            await self.read_state()

    async def read_state(self) -> State:
        """Read the state as ingest does."""
        state = await self.state()
        self.index.set_state(state)
        return state

    async def state(self) -> State:
        found = await self.platform.alarms.list_states_of_other_rules([self.id], [])
        return found[0] if found else State(
            id="", tenant="default", rule=self.id, generation=1, device=self.id
        )  # fmt: skip

    async def compare(self, now: int) -> None:
        """Compare with the plain computation."""
        wanted = expected(self.sequence.condition, self.arrived, self.clears, now)
        state = await self.state()
        found = self.platform.world.database["alarms"].find({"device": self.id}, sort=[("_id", 1)])
        alarms = [(one["raisedAt"], one.get("clearedAt"), one["open"]) async for one in found]
        assert [one for *_, one in alarms].count(True) == wanted.is_open, (self.id, now)
        assert all(over is None or raised <= over for raised, over, _ in alarms)
        assert state.status == wanted.status, (self.id, now, self.sequence)
        if self.sequence.in_order and not self.clears:
            assert [one[:2] for one in alarms] == wanted.alarms, (self.id, now, self.sequence)


async def add(platform: Platform, devices: list[Device]) -> None:
    now = datetime.now(UTC)
    await platform.world.database["devices"].insert_many(
        {
            "_id": device.id,
            "sn": f"SN{device.id}",
            "snKey": f"SN{device.id}",
            "tenant": "default",
            "model": "m",
            "tslVersion": "v1.0",
            "name": f"device {device.id}",
            "application": None,
            "connectStatus": "DISCONNECT",
            "createdAt": now,
            "updatedAt": now,
        }
        for device in devices
    )
    rules = [to_document(device.rule) for device in devices]
    await platform.world.database["alarm_rules"].insert_many(rules)


async def test_a_state_equals_a_fold_over_all_readings(platform: Platform) -> None:
    """The state equals a fold over all readings, in any order and batches."""
    devices = [Device(platform, seed, generate(seed)) for seed in range(1, SEQUENCES + 1)]
    await add(platform, devices)
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(device: Device) -> None:
        async with slots:
            await device.run()

    async with asyncio.TaskGroup() as group:
        for device in devices:
            group.create_task(run(device))


async def test_a_requested_reading_counts_after_its_rule_was_renamed(
    platform: Platform,
) -> None:
    """Requested readings count; others from before the rule do not."""
    device = Device(platform, 1002, Sequence(ValueCondition("t", "GT", 30), in_order=True))
    device.rule.updated_at = FIRST + 60_000
    await add(platform, [device])
    device.restart(None)
    before, reading = Reading(FIRST, 1, 32, FIRST), Reading(FIRST + 59_000, 2, 31, FIRST + 59_000)
    await device.store(before)
    await device.store(reading)
    _clock.set(FIRST + 61_000)
    await device.evaluate_all(device.requests(reading))
    state = await device.state()
    assert (state.status, state.value) == ("RAISED", 31)


async def test_an_overtaken_evaluation_restarts_at_its_checkpoint(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would skip a reading that was not requested for the earlier state."""
    condition = ValueCondition("t", "GT", 30, seconds=148)
    device = Device(platform, 1001, Sequence(condition, in_order=True))
    await add(platform, [device])
    device.restart(None)
    since = platform.evaluator.history.read_since
    begin, normal, last = (
        Reading(FIRST + ms, number, value, FIRST + ms)
        for number, (ms, value) in enumerate(((0, 31), (20_000, 20), (150_000, 31)), 1)
    )

    async def overtaken(*arguments: Any) -> list[Any]:
        monkeypatch.setattr(platform.evaluator.history, "read_since", since)
        _clock.set(last.arrival - 5_000)
        await device.store(begin)
        await device.evaluate_all(device.requests(begin))
        await device.store(normal)
        await device.store(last)
        _clock.set(last.arrival)
        return await since(*arguments)

    monkeypatch.setattr(platform.evaluator.history, "read_since", overtaken)
    _clock.set(last.arrival)
    await device.evaluate_all(device.requests(last))
    state = await device.state()
    assert (state.status, state.since) == ("PENDING", last.ts)


async def test_all_rules_of_a_device_share_one_read_and_one_transaction(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next evaluation reads only new readings."""
    monkeypatch.setattr(row_sources, "ROWS_PER_READ", 5000)
    device = Device(platform, 1003, Sequence(ValueCondition("t", "GT", 30), in_order=True))
    await add(platform, [device])
    rules = [
        msgspec.structs.replace(device.rule, id=number, condition=ValueCondition("t", "GT", number))
        for number in range(2000, 2050)
    ]
    await platform.world.database["alarm_rules"].insert_many(to_document(rule) for rule in rules)
    history, mongo, found = platform.evaluator.history, platform.world.mongo, list[int]()
    since, transaction, transactions = history.read_since, mongo.transaction, list[Any]()

    async def read(*arguments: Any) -> list[Any]:
        found.append(len(more := await since(*arguments)))
        return more

    async def write(work: Any) -> Any:
        transactions.append(work)
        return await transaction(work)

    monkeypatch.setattr(history, "read_since", read)
    monkeypatch.setattr(mongo, "transaction", write)
    for first in (1, 5):
        events = []
        for number in range(first, first + 4):
            at = FIRST + number * 1000
            reading = Reading(at, number, 3000 if number % 2 else 0, at)
            await device.store(reading)
            values = {rule.id: reading.value for rule in rules}
            pointer = EvaluationRequest(tenant="default", device_id=1003, values=values, ts=at,
                              sequence=number, received=at, earliest=at)  # fmt: skip
            said = build_request_message(pointer, f"1003-{number}", {})
            events.append((said.subject, said.payload))
        _clock.set(FIRST + (first + 3) * 1000)
        assert not await platform.evaluator.evaluate_events("default", events)
    assert found == [4, 5]
    assert len(transactions) == 2
    alarms = platform.world.database["alarms"]
    assert await alarms.count_documents({"device": 1003, "open": False}) == 50 * 4
