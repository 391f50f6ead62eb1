"""Judges what the bus tells of devices by the rules, and carries states on.

An event only says that there is something to look at. What happened, and in which order, stands in
history, which has every report before its event is said. So events may come twice, late, or to
another process, and each transition still happens once (docs/decisions/0031).
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus
from libs.common.bus.wire import acknowledge
from libs.common.clock import now_ms
from libs.common.telemetry.tracing import batch, trace_of
from services.device.alarms.deciding import Row, decide, decide_silence
from services.device.alarms.following import FollowedRules
from services.device.alarms.index import Compiled, Looks
from services.device.alarms.messages import Heard, read_heard
from services.device.alarms.model import SilenceCondition, State
from services.device.alarms.rows import CHUNK, History, merged
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore

DURABLE = "alarms"
BATCH = 2000
"""Events that are taken at a time; other replicas take the next ones."""
PAUSE = 0.1
"""Seconds after a smaller batch: many small ones would cost more than what they hold."""
ACK_WAIT = 30.0
"""Seconds after which events of a process that died go to another one."""
MARGIN = 120_000
"""ms before an event from which on history is looked at: events that a process that died had in
hand come `ACK_WAIT` later than those behind them. What was before the rule does not count."""
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


class Evaluator:
    """Carries states on; one per process."""

    def __init__(
        self,
        followed: FollowedRules,
        rules: RuleStore,
        alarms: AlarmStore,
        history: History,
        devices: DeviceStore,
        latest: LatestValues,
    ) -> None:
        self._followed = followed
        self._index = followed.index
        self._rules = rules
        self._alarms = alarms
        self._history = history
        self._devices = devices
        self._latest = latest

    async def take(self, events: Iterable[tuple[str, bytes]]) -> None:
        """Do what events ask for: subjects and bodies. Repeatable."""
        await self._followed.ready.wait()
        looks: dict[tuple[int, int], _Look] = {}
        changed: dict[int, str] = {}
        for subject, body in events:
            _, tenant, kind, device, what = subject.split(".", 4)
            if kind != "device":
                continue
            if what == "deleted" or (what in ("added", "updated") and self._index.has(tenant)):
                changed[int(device)] = tenant
            elif what in ("reported", "event") and self._index.has(tenant):
                for found in self._looks(subject, body, looks):
                    known = looks.setdefault((found.compiled.rule.id, found.device), found)
                    if known is not found:
                        known.start = min(known.start, found.start)
                        known.heard += found.heard
        await _each(self._fit(device, tenant) for device, tenant in changed.items())
        await _each(self.look(one) for one in looks.values())

    def _looks(self, subject: str, body: bytes, looks: Looks) -> Iterator[_Look]:
        try:
            heard = read_heard(body)
        except msgspec.DecodeError as error:
            log.warning("%s is not readable: %s", subject, error)
            return
        for compiled, value in self._matching(heard, looks):
            row = Row(heard.ts, heard.sequence, value)
            start = max(heard.ts - MARGIN, min(compiled.rule.updated_at, heard.ts - 1))
            yield _Look(compiled, heard.device.device_id, start, [row])

    def _matching(self, heard: Heard, looks: Looks) -> Iterable[tuple[Compiled, object]]:
        about = heard.tenant, heard.device.device_id, heard.device.model
        if heard.tsl_id:
            return self._index.occurred(about, heard.tsl_id, looks)
        return self._index.reported(about, heard.properties, looks)

    async def again(self, compiled: Compiled, state: State) -> None:
        """Look at a state whose time has come."""
        await self.look(_Look(compiled, state.device, state.at))

    async def look(self, wanted: _Look) -> None:
        """Carry a state on by all that history has since."""
        rule, condition = wanted.compiled.rule, wanted.compiled.rule.condition
        if isinstance(condition, SilenceCondition):
            newest = (await self._latest.times([wanted.device])).get(wanted.device)
            now = now_ms()
            state = await self._alarms.settle(
                rule, wanted.device, lambda state: decide_silence(condition, state, newest, now)
            )
            self._know(state)
            return
        at, sequence, heard = wanted.start, 0, wanted.heard
        while True:
            stored = await self._history.since(condition, wanted.device, at, sequence)
            whole = len(stored) < CHUNK
            now = now_ms() if whole else stored[-1].ts
            rows = merged(stored, heard if whole else ())
            state = await self._alarms.settle(
                rule,
                wanted.device,
                lambda state, rows=rows, now=now: decide(  # type: ignore[misc]
                    rule, wanted.compiled.judge, state, rows, now
                ),
            )
            self._know(state)
            if whole or state is None:
                return
            at, sequence = stored[-1].ts, stored[-1].sequence

    def _know(self, state: State | None) -> None:
        if state is not None:
            self._index.know(state)

    async def _fit(self, device_id: int, tenant: str) -> None:
        """Let states follow a device that is new, changed or gone."""
        found = await self._devices.listed(tenant, [device_id])
        if not found:
            await self._rules.end_of_device(tenant, device_id)
            await self._alarms.end_of_device(device_id)
            return
        mine = {one.rule.id: one.rule for one in self._index.of(tenant, device_id, found[0].model)}
        for state in await self._alarms.of_device(device_id):
            if state.rule not in mine:
                await self._alarms.end(state, gone=False)
        for rule in mine.values():
            if isinstance(rule.condition, SilenceCondition):
                await self._alarms.watch_silences(rule, [device_id], now_ms())


async def _each(jobs: Iterable[Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(job: Awaitable[None]) -> None:
        async with slots:
            await job

    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(one(job))


def listen(bus: Bus, evaluator: Evaluator) -> BatchConsumer:
    """The consumer that all replicas share; it acknowledges events whose states are stored.

    It takes all of `EVENTS`, nearly all of which are reports: a filter of several subjects costs
    nats-server 150 µs an event, one of one subject 20 µs, none 5 µs (2.10, measured).
    """

    async def take(messages: list[Msg]) -> None:
        await judge(messages)
        if len(messages) < BATCH:
            await asyncio.sleep(PAUSE)

    async def judge(messages: list[Msg]) -> None:
        with batch("alarms batch", [trace_of(message.headers) for message in messages]):
            await evaluator.take((message.subject, message.data) for message in messages)
            await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        handle=take,
        batch=BATCH,
        concurrency=1,
        ack_wait=ACK_WAIT,
        from_now=True,
    )
