"""Looks at the states that ingest points at, and carries them on.

A pointer only says that there is something to look at. What happened, and in which order, stands in
history, which has every report before it is pointed at. So pointers may come twice, late, or to
another process, and each transition still happens once. What came before it and is not stored yet
is waited for (docs/decisions/0031).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus
from libs.common.bus.subjects import look_event
from libs.common.bus.wire import acknowledge, hand_back
from libs.common.clock import now_ms
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.device.alarms.deciding import Row, decide, decide_silence
from services.device.alarms.index import Compiled, compiled
from services.device.alarms.messages import Pointer, read_pointer
from services.device.alarms.model import EventCondition, SilenceCondition, State, ValueCondition
from services.device.alarms.rows import CHUNK, History, merged
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.alarms.unstored import Unstored, UplinkReader
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore

DURABLE = "alarms"
SUBJECTS = (
    look_event("*", "*"),
    *(f"event.*.device.*.{change}" for change in ("added", "updated", "deleted")),
)
BATCH = 2000
"""Events that are taken at a time; other replicas take the next ones."""
ACK_WAIT = 30.0
"""Seconds after which events of a process that died go to another one."""
MARGIN = 120_000
"""ms before an event from which on history is looked at: events that a process that died had in
hand come `ACK_WAIT` later than those behind them. What was before the rule does not count."""
AGAIN = 0.5
"""Seconds until a look is tried again that has to wait for what is not stored yet."""
AT_ONCE = 8
"""States that a process carries on at the same time."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Look:
    """A rule and a device that have to be looked at."""

    compiled: Compiled
    device: int
    start: int
    heard: list[Row] = field(default_factory=list)
    near: int = 0
    """Sequence of what decided last."""


@dataclass(frozen=True)
class Evaluator:
    """Carries states on; one per process."""

    rules: RuleStore
    alarms: AlarmStore
    history: History
    devices: DeviceStore
    latest: LatestValues
    uplink: UplinkReader

    async def take(self, events: Iterable[tuple[str, bytes]]) -> set[int]:
        """Do what events ask for: subjects and bodies. Repeatable.

        Returns the devices whose pointers have to come again. Raises `StoreError`, `Unavailable`.
        """
        pointers: list[Pointer] = []
        changed: dict[str, set[int]] = defaultdict(set)
        for subject, body in events:
            _, tenant, kind, device, *_ = subject.split(".")
            if kind == "device":
                changed[tenant].add(int(device))
            elif pointer := _read(subject, body):
                pointers.append(pointer)
        for tenant, devices in changed.items():
            await self._fit(tenant, devices)
        looks = await self._looks(pointers)
        done = await _each(self.look(one) for one in looks)
        return {one.device for one, well in zip(looks, done, strict=True) if not well}

    async def _looks(self, pointers: Sequence[Pointer]) -> list[_Look]:
        """One look for each rule and device, whatever number of pointers there are."""
        ids = {rule for pointer in pointers for rule in pointer.values}
        rules = {one: compiled(rule) for one, rule in (await self.rules.some(list(ids))).items()}
        looks: dict[tuple[int, int], _Look] = {}
        for pointer in pointers:
            for rule_id, value in pointer.values.items():
                if rule_id not in rules:
                    continue
                one, row = rules[rule_id], Row(pointer.ts, pointer.sequence, value)
                start = max(pointer.ts - MARGIN, min(one.rule.updated_at, pointer.ts - 1))
                fresh = _Look(one, pointer.device_id, start)
                look = looks.setdefault((rule_id, pointer.device_id), fresh)
                look.start = min(look.start, start)
                look.heard.append(row)
        return list(looks.values())

    async def again(self, compiled: Compiled, state: State) -> None:
        """Look at a state whose time has come, or later."""
        if not await self.look(_Look(compiled, state.device, state.at, near=state.sequence)):
            await self.alarms.postpone([(state, now_ms() + int(AGAIN * 1000))])

    async def look(self, wanted: _Look) -> bool:
        """Carry a state on by all that history has since; whether nothing had to be waited for."""
        rule, condition = wanted.compiled.rule, wanted.compiled.rule.condition
        if isinstance(condition, SilenceCondition):
            return await self._look_at_silence(wanted, condition)
        at, sequence, heard = wanted.start, 0, wanted.heard
        while True:
            stored, missing = await self._since(wanted, condition, at, sequence)
            whole = len(stored) < CHUNK
            now = now_ms() if whole else stored[-1].ts
            rows = merged(stored, heard if whole else ())
            if missing is not None:
                if any(row.sequence > missing.sequence for row in rows):
                    return False
                now = min(now, missing.received)
            state = await self.alarms.settle(
                rule,
                wanted.device,
                lambda state, rows=rows, now=now: decide(  # type: ignore[misc]
                    rule, wanted.compiled.judge, state, rows, now
                ),
            )
            if whole or state is None:
                return True
            at, sequence = stored[-1].ts, stored[-1].sequence

    async def _look_at_silence(self, wanted: _Look, condition: SilenceCondition) -> bool:
        if await self._missing(wanted, 0) is not None:
            return False
        newest = (await self.latest.times([wanted.device])).get(wanted.device)
        now = now_ms()
        await self.alarms.settle(
            wanted.compiled.rule,
            wanted.device,
            lambda state: decide_silence(condition, state, newest, now),
        )
        return True

    async def _since(
        self, wanted: _Look, condition: ValueCondition | EventCondition, at: int, sequence: int
    ) -> tuple[list[Row], Unstored | None]:
        """Rows of history, and the oldest message that may be missing among them."""
        after = 0
        while True:
            missing = await self._missing(wanted, after)
            stored = await self.history.since(condition, wanted.device, at, sequence)
            if missing is None or all(row.sequence != missing.sequence for row in stored):
                return stored, missing
            after = missing.sequence

    async def _missing(self, wanted: _Look, after: int) -> Unstored | None:
        listed = await self.devices.lists.listed(wanted.compiled.rule.tenant, [wanted.device])
        heard = {row.sequence for row in wanted.heard}
        for device in listed:
            return await self.uplink.first(device.sn, after, {*heard, wanted.near}, heard)
        return None

    async def _fit(self, tenant: str, devices: set[int]) -> None:
        """Let states follow devices that are new, changed or gone."""
        found = {one.id: one.model for one in await self.devices.lists.listed(tenant, devices)}
        for gone in devices - found.keys():
            await self.rules.end_of_device(tenant, gone)
            await self.alarms.end_of_device(gone)
        rules = await self.rules.about(tenant, found)
        for state in await self.alarms.of_devices(found):
            model = found[state.device]
            if not any(one.id == state.rule and one.applies(tenant, state.device, model)
                       for one in rules):  # fmt: skip
                await self.alarms.end(state, gone=False)
        for rule in rules:
            if isinstance(rule.condition, SilenceCondition):
                mine = [one for one, model in found.items() if rule.applies(tenant, one, model)]
                await self.alarms.watch_silences(rule, mine, now_ms())


def _read(subject: str, body: bytes) -> Pointer | None:
    try:
        return read_pointer(body)
    except INVALID_JSON as error:
        log.warning("%s is not readable: %s", subject, error)
        return None


async def _each(jobs: Iterable[Awaitable[bool]]) -> list[bool]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(job: Awaitable[bool]) -> bool:
        async with slots:
            return await job

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(job)) for job in jobs]
    return [task.result() for task in tasks]


def listen(bus: Bus, evaluator: Evaluator) -> BatchConsumer:
    """The consumer that all replicas share; it acknowledges events whose states are stored."""

    async def take(messages: list[Msg]) -> None:
        with batch("alarms batch", [trace_of(message.headers) for message in messages]):
            again = await evaluator.take((message.subject, message.data) for message in messages)
            late = {one.reply for one in messages if int(one.subject.split(".")[3]) in again}
            await hand_back(bus.client, dict.fromkeys(late, AGAIN))
            await acknowledge(bus.client, (one for one in messages if one.reply not in late))

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        handle=take,
        batch=BATCH,
        concurrency=1,
        ack_wait=ACK_WAIT,
        subjects=SUBJECTS,
        from_now=True,
    )
