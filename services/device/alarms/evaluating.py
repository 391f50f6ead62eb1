"""Looks at the states that ingest points at, and carries them on.

A pointer only says that there is something to look at. What happened, and in which order, stands in
history, which has every report before it is pointed at. So pointers may come twice, late, or to
another process, and each transition still happens once. What came before it and is not stored yet
is waited for (docs/decisions/0031).

For each rule and device: read the state and history from its checkpoint on, call the fold
(`deciding`), and write what it returns.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from nats.aio.msg import Msg
from opentelemetry import metrics

from libs.common.bus import EVENTS, BatchConsumer, Bus
from libs.common.bus.subjects import look_event
from libs.common.bus.wire import acknowledge, hand_back
from libs.common.clock import now_ms
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.device.alarms.deciding import (
    Change,
    Row,
    Window,
    covers,
    decide,
    decide_by_pointers,
    decide_silence,
    floor_of,
    in_time,
    start_of,
)
from services.device.alarms.index import Compiled, compiled
from services.device.alarms.messages import Pointer, read_pointer
from services.device.alarms.model import (
    EventCondition,
    SilenceCondition,
    State,
    ValueCondition,
    fresh_state,
)
from services.device.alarms.rows import CHUNK, History, have_all, merged
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
AGAIN = 0.5
"""Seconds until a look is tried again that has to wait for what is not stored yet."""
AT_ONCE = 8
"""States that a process carries on at the same time."""

log = logging.getLogger(__name__)
_late = metrics.get_meter("thingway").create_counter(
    "thingway_alarm_readings_late",
    description="Readings that came too late to change an alarm",
)


@dataclass(slots=True)
class _Look:
    """A rule and a device that have to be looked at."""

    compiled: Compiled
    device: int
    state: State
    """As it was before."""
    sn: str | None = None
    """None: the device is gone."""
    heard: list[Row] = field(default_factory=list)
    earliest: int | None = None
    """ms: the time of the oldest reading that may not be evaluated yet; None: the state says so."""


@dataclass(slots=True)
class _Evaluation:
    """Calls the fold, in a transaction that reads the state again."""

    compiled: Compiled
    window: Window
    now: int
    kept: bool
    """Whether the device keeps history."""
    begun: int
    """ms: when the first reading that was pointed at arrived. A new state counts it, also when the
    rule was renamed meanwhile."""
    lacks: State | None = None
    """The state that another process has carried on, if it needs more than the window has."""

    def decide(self, state: State) -> tuple[State, list[Change]]:
        """Return the state and what changes its alarm; nothing when it needs more."""
        rule, judge, self.lacks = self.compiled.rule, self.compiled.judge, None
        if not state.changed:
            state = msgspec.structs.replace(state, begun=min(state.begun, self.begun))
        if not self.kept:
            return decide_by_pointers(rule, judge, state, self.window.rows, self.now)
        if not covers(state, self.window.start, now_ms()):
            self.lacks = state
            return state, []
        return decide(rule, judge, state, self.window, self.now)


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
        looks = list((await self._looks(pointers)).values())
        done = await _each(self.look(one) for one in looks)
        return {one.device for one, well in zip(looks, done, strict=True) if not well}

    async def _looks(self, pointers: Sequence[Pointer]) -> dict[str, _Look]:
        """One look for each rule and device, whatever number of pointers there are."""
        ids = {rule for pointer in pointers for rule in pointer.values}
        rules = {one: compiled(rule) for one, rule in (await self.rules.some(list(ids))).items()}
        looks: dict[str, _Look] = {}
        for pointer in pointers:
            ts, device = pointer.ts, pointer.device_id
            for rule_id, value in pointer.values.items():
                if rule_id in rules:
                    fresh = fresh_state(rules[rule_id].rule, device)
                    look = looks.setdefault(fresh.id, _Look(rules[rule_id], device, fresh))
                    row = Row(ts, pointer.sequence, value, pointer.received or ts)
                    look.heard.append(row)
                    since = pointer.earliest or ts
                    look.earliest = min(look.earliest or since, since)
        stored = await self.alarms.states(list(looks))
        serials = await self._serials(looks.values())
        for key, look in looks.items():
            look.state = stored.get(key, look.state)
            look.sn = serials.get(look.device)
        return looks

    async def _serials(self, looks: Iterable[_Look]) -> dict[int, str]:
        """The SN of each device that exists."""
        devices: dict[str, set[int]] = defaultdict(set)
        for look in looks:
            devices[look.compiled.rule.tenant].add(look.device)
        return {
            device.id: device.sn
            for tenant, ids in devices.items()
            for device in await self.devices.lists.listed(tenant, ids)
        }

    async def again(self, compiled: Compiled, state: State) -> None:
        """Look at a state whose time has come, or later."""
        look = _Look(compiled, state.device, state)
        look.sn = (await self._serials([look])).get(state.device)
        if not await self.look(look):
            await self.alarms.postpone([(state, now_ms() + int(AGAIN * 1000))])

    async def look(self, wanted: _Look) -> bool:
        """Carry a state on by all that history has since; whether nothing had to be waited for."""
        condition = wanted.compiled.rule.condition
        if isinstance(condition, SilenceCondition):
            return await self._look_at_silence(wanted, condition)
        floor, changed = floor_of(wanted.state), wanted.state.changed
        heard = [row for row in wanted.heard if row.ts >= floor]
        _late.add(sum(row.ts < floor and row.arrival > changed for row in wanted.heard))
        if wanted.heard and not heard:
            return True
        while True:
            start = start_of(wanted.state, wanted.earliest, now_ms())
            found = await self._carry_on(wanted, condition, heard, start)
            if isinstance(found, bool):
                return found
            wanted.state = found

    async def _carry_on(
        self,
        wanted: _Look,
        condition: ValueCondition | EventCondition,
        heard: Sequence[Row],
        start: int,
    ) -> bool | State:
        """Evaluate from `start` (ms) on; return whether nothing had to be waited for.

        Returns the state instead when another process has carried it on, and it needs more.
        """
        rule, rows = wanted.compiled.rule, list[Row]()
        at, sequence = start, 0
        while True:
            stored, missing = await self._since(wanted, condition, at, sequence)
            rows += stored
            whole = len(stored) < CHUNK
            now = now_ms() if whole else stored[-1].ts
            kept = not whole or have_all(rows, heard)
            known = rows if kept else merged(rows, heard)
            if missing is not None:
                if any(row.sequence > missing.sequence for row in known):
                    return False
                now = min(now, missing.received)
            window = Window(start, in_time(known))
            begun = min((row.arrival for row in heard), default=now)
            look = _Evaluation(wanted.compiled, window, now, kept=kept, begun=begun)
            state = await self.alarms.settle(rule, wanted.device, look.decide, always=not whole)
            if look.lacks is not None:
                return look.lacks
            if whole or state is None:
                timely = {row[:2] for row in look.window.rows}
                _late.add(sum(row[:2] not in timely for row in heard))
                return True
            at, sequence = stored[-1].ts, stored[-1].sequence
            start = floor_of(state)
            rows = [row for row in rows if row.ts >= start]
            heard = [row for row in heard if row.ts >= start]

    async def _look_at_silence(self, wanted: _Look, condition: SilenceCondition) -> bool:
        if await self._missing(wanted, 0) is not None:
            return False
        newest = (await self.latest.arrivals([wanted.device])).get(wanted.device)
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
        if wanted.sn is None:
            return None
        heard = {row.sequence for row in wanted.heard}
        near = heard or {wanted.state.sequence}
        return await self.uplink.first(wanted.sn, after, near, heard)

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
