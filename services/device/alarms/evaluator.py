"""Evaluation of rules: by messages that trigger it, and by time.

A pointer only says that a state may change. What happened, and in which order, stands in history,
which has every report before it is pointed at. So pointers may come twice, late, or to another
process, and each transition still happens once. What came before it and is not stored yet is
waited for (docs/decisions/0031).

The pointers of a batch are joined: each rule and device is evaluated once. One read of history
serves all rules of a device, and their states are written together (docs/decisions/0052).

`Sweep` evaluates what changes by time alone: silences, durations, and rules that have changed.

One replica at a time does it, for each tenant in its turn. Everything that is due stands in the
states, so the next replica does what is left after a crash, with the times at which it was due.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus
from libs.common.bus.laned import event_tenant
from libs.common.bus.publishing import acknowledge, hand_back
from libs.common.bus.subjects import look_event
from libs.common.clock import now_ms
from libs.common.decoding import INVALID_JSON
from libs.common.scheduling import FairScheduler
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.telemetry.tracing import batch, trace_of
from services.device.alarms import row_sources
from services.device.alarms.decision import decide_silence, start_of
from services.device.alarms.evaluations import DeviceLooks, Look, by_device, joined
from services.device.alarms.events import Pointer, read_pointer
from services.device.alarms.model import Rule, SilenceCondition, State, fresh_state
from services.device.alarms.row_sources import Stored, Unstored, UplinkReader, source_of
from services.device.alarms.rule_index import compiled
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore, Decision
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore

log = logging.getLogger(__name__)

DURABLE = "alarms"
SUBJECTS = (
    look_event("*", "*"),
    *(f"event.*.device.*.{change}" for change in ("added", "updated", "deleted")),
)
BATCH = 1000
"""Events that are taken at a time; other replicas take the next ones."""
ACK_WAIT = 30.0
"""Seconds after which events of a process that died go to another one."""
AGAIN = 0.5
"""Seconds until an evaluation is tried again that has to wait for what is not stored yet."""
BATCHES = 4
"""Tenants whose events a process handles at the same time."""
READERS = 8
"""Devices whose history a process reads at the same time."""
DEVICES = 50
"""Devices that are handled together."""
LONGEST = 10.0
"""Seconds after which the rest of a batch is handed back."""
MOST_ROWS = 20_000
"""Rows of history of one device that are held at a time, unless its states know newer ones."""


@dataclass(frozen=True)
class Evaluator:
    """Carries states on; one per process."""

    rules: RuleStore
    alarms: AlarmStore
    history: row_sources.History
    devices: DeviceStore
    latest: LatestValues
    uplink: UplinkReader
    readers: FairScheduler = field(default_factory=lambda: FairScheduler("alarms", READERS))

    async def evaluate_events(self, tenant: str, events: Iterable[tuple[str, bytes]]) -> set[int]:
        """Do what events of a tenant ask for: subjects and bodies. Repeatable.

        Returns the devices whose pointers have to come again. Raises `StoreError`, `Unavailable`.
        """
        pointers, changed = list[Pointer](), set[int]()
        for subject, body in events:
            _, _, kind, device, *_ = subject.split(".")
            if kind == "device":
                changed.add(int(device))
            elif pointer := _read(subject, body):
                pointers.append(pointer)
        for first in range(0, len(changed), DEVICES):
            await self._fit(tenant, set(list(changed)[first : first + DEVICES]))
        ids = {rule for pointer in pointers for rule in pointer.values}
        if not ids:
            return set()
        rules = {one: compiled(rule) for one, rule in (await self.rules.some(list(ids))).items()}
        looks = joined(pointers, rules)
        pointers.clear()  # they can have many MiB
        await self._reread(looks)
        return await self._evaluate(tenant, looks)

    async def again(self, tenant: str, due: Iterable[tuple[Rule, State]]) -> None:
        """Evaluate states of a tenant whose time has come, or later."""
        now = now_ms()
        looks = [
            Look(compiled(rule), state, 0 if (state.settles or sys.maxsize) <= now else sys.maxsize)
            for rule, state in due
        ]
        states = [look.state for look in looks]
        waiting, later = await self._evaluate(tenant, looks), now_ms() + int(AGAIN * 1000)
        await self.alarms.postpone([(one, later) for one in states if one.device in waiting])

    async def _reread(self, looks: Collection[Look]) -> None:
        """Let looks begin with the states as they are now."""
        stored = await self.alarms.states([look.state.id for look in looks])
        for look in looks:
            fresh = fresh_state(look.compiled.rule, look.state.device)
            look.state = stored.get(fresh.id, fresh)

    async def _evaluate(self, tenant: str, looks: Sequence[Look]) -> set[int]:
        """Carry states on; return the devices whose pointers have to come again."""
        until, waiting = time.monotonic() + LONGEST, set[int]()
        ids = {look.state.device for look in looks}
        serials = {one.id: one.sn for one in await self.devices.lists.listed(tenant, ids)}
        await self.alarms.end([look.state for look in looks if look.state.device not in serials])
        left = by_device(looks, serials)
        while left and time.monotonic() < until:
            some, left = left[:DEVICES], left[DEVICES:]
            jobs = [self.readers.run(tenant, partial(self._decide, one)) for one in some]
            decided = await asyncio.gather(*jobs)
            settled = await self.alarms.settle([one for each in decided for _, one in each])
            waiting.update(device.device for device in some if device.waits)
            for device, each in zip(some, decided, strict=True):
                if overtaken := [look for look, one in each if one.before.id not in settled]:
                    await self._reread(overtaken)
                    left.append(DeviceLooks(device.device, device.sn, overtaken))
        return waiting | {device.device for device in left}

    async def _decide(self, device: DeviceLooks) -> list[tuple[Look, Decision]]:
        """Read what the looks at a device need, and decide."""
        sources = {source_of(one) for one in device.conditions()}
        if not sources:
            return await self._decide_silences(device)
        stored, missing, complete = await self._read(device, sources)
        found = list[tuple[Look, Decision]]()
        for one in device.decisions(stored, missing, now_ms(), complete=complete):
            found.append(one)
            await asyncio.sleep(0)  # many rules and rows take long
        return found

    async def _decide_silences(self, device: DeviceLooks) -> list[tuple[Look, Decision]]:
        if await self._missing(device, 0) is not None:
            device.waits = True
            return []
        newest = (await self.latest.arrivals([device.device])).get(device.device)
        return [
            (look, look.decided(*decide_silence(condition, look.state, newest, now_ms())))
            for look in device.looks
            if isinstance(condition := look.compiled.rule.condition, SilenceCondition)
        ]

    async def _read(
        self, device: DeviceLooks, sources: Collection[str]
    ) -> tuple[list[Stored], Unstored | None, bool]:
        """Return history, the oldest message that may be missing there, and whether that is all.

        The states know the changes of newer rows: what is read goes on behind these at least.
        """
        now, after, missing, stored = now_ms(), 0, None, list[Stored]()
        starts = [start_of(look.state, look.oldest, look.earliest, now) for look in device.looks]
        known = max(max(look.state.newest, look.state.at) for look in device.looks)
        at, sequence = min(start.at for start in starts), 0
        while True:
            found = await self._missing(device, after)
            more = await self.history.since(sources, device.device, at, sequence)
            if found is not None and any(row.sequence == found.sequence for row in more):
                after = found.sequence
                continue
            stored, missing = stored + more, missing or found
            complete = len(more) < row_sources.CHUNK
            if complete or (len(stored) >= MOST_ROWS and more[-1].ts > known):
                return stored, missing, complete
            at, sequence = more[-1].ts, more[-1].sequence

    async def _missing(self, device: DeviceLooks, after: int) -> Unstored | None:
        heard = {row.sequence for look in device.looks for row in look.heard}
        near = heard or {look.state.sequence for look in device.looks}
        return await self.uplink.first(device.sn, after, near, heard)

    async def _fit(self, tenant: str, devices: set[int]) -> None:
        """Let states follow devices that are new, changed or gone."""
        found = {one.id: one.model for one in await self.devices.lists.listed(tenant, devices)}
        for gone in devices - found.keys():
            await self.rules.end_of_device(tenant, gone)
            await self.alarms.end_of_device(gone)
        rules = await self.rules.about(tenant, found)
        for model in set(found.values()):
            mine = [one for one in found if found[one] == model]
            named = [rule for rule in rules if rule.product == model or rule.device in mine]
            await self.alarms.end(await self.alarms.others(mine, [rule.id for rule in named]))
            for rule in named:
                if isinstance(rule.condition, SilenceCondition):
                    watched = mine if rule.device is None else [rule.device]
                    await self.alarms.watch_silences(rule, watched, now_ms())


def _read(subject: str, body: bytes) -> Pointer | None:
    try:
        return read_pointer(body)
    except INVALID_JSON as error:
        log.warning("%s is not readable: %s", subject, error)
        return None


def listen(bus: Bus, evaluator: Evaluator) -> BatchConsumer:
    """The consumer that all replicas share; it acknowledges events whose states are stored."""

    async def evaluate_messages(messages: list[Msg]) -> None:
        with batch("alarms batch", [trace_of(message.headers) for message in messages]):
            events = ((message.subject, message.data) for message in messages)
            again = await evaluator.evaluate_events(event_tenant(messages[0]), events)
            late = {one.reply for one in messages if int(one.subject.split(".")[3]) in again}
            await hand_back(bus.client, dict.fromkeys(late, AGAIN))
            await acknowledge(bus.client, (one for one in messages if one.reply not in late))

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        handle=evaluate_messages,
        lane=event_tenant,
        batch=BATCH,
        concurrency=BATCHES,
        ack_wait=ACK_WAIT,
        subjects=SUBJECTS,
        from_now=True,
    )


PERIOD = 0.5
"""Seconds between two looks."""
SWEPT_STATES = 500
"""States of a tenant that are looked at in one turn."""
SWEEPERS = 8
"""Turns of tenants at the same time."""


@dataclass(frozen=True)
class Sweep:
    """Looks at what is due."""

    rules: RuleStore
    alarms: AlarmStore
    evaluator: Evaluator
    devices: DeviceStore
    latest: LatestValues

    async def run(self) -> None:
        """Look for ever; run by the lease holder."""
        await take_turns("due alarms", SWEEPERS, self._tenants, self._steps, PERIOD)

    async def _tenants(self) -> set[str]:
        return {*await self.rules.tenants_to_do(), *await self.alarms.tenants_due(now_ms())}

    async def _steps(self, tenant: str) -> Steps:
        """Do what is due of a tenant."""
        for rule in await self.rules.to_do(tenant):
            await self._follow(rule)
            yield
        while await self.look(tenant):
            yield

    async def look(self, tenant: str) -> bool:
        """Look at some states of a tenant that are due; whether there may be more."""
        states = await self.alarms.due(tenant, now_ms(), SWEPT_STATES)
        rules = await self.rules.some(list({state.rule for state in states}))
        due: list[tuple[Rule, State]] = []
        quiet: list[tuple[Rule, State]] = []
        ended: list[State] = []
        for state in states:
            rule = rules.get(state.rule)
            if rule is None or not rule.alive or rule.generation != state.generation:
                ended.append(state)
            elif isinstance(rule.condition, SilenceCondition) and state.status == "NORMAL":
                quiet.append((rule, state))
            else:
                due.append((rule, state))
        await self.alarms.end(ended, gone=True)
        await self.evaluator.again(tenant, [*due, *await self._silent(quiet)])
        return len(states) == SWEPT_STATES

    async def _silent(self, states: list[tuple[Rule, State]]) -> list[tuple[Rule, State]]:
        """Postpone the states of devices that have reported; return the others."""
        newest = await self.latest.arrivals([state.device for _, state in states])
        later, silent = list[tuple[State, int]](), list[tuple[Rule, State]]()
        for rule, state in states:
            if isinstance(silence := rule.condition, SilenceCondition):
                heard = newest.get(state.device)
                after, changes = decide_silence(silence, state, heard, now_ms())
                if changes or after.due is None:
                    silent.append((rule, state))
                else:
                    later.append((state, after.due))
        await self.alarms.postpone(later)
        return silent

    async def _follow(self, rule: Rule) -> None:
        """End what a rule did as it was before; begin to watch the devices of a silence."""
        while states := await self.alarms.outdated(rule, SWEPT_STATES):
            await self.alarms.end(states, gone=True)
        if rule.alive and isinstance(rule.condition, SilenceCondition):
            await self._watch(rule)
        await self.rules.done(rule)

    async def _watch(self, rule: Rule) -> None:
        if rule.device is not None:
            await self.alarms.watch_silences(rule, [rule.device], rule.updated_at)
            return
        after = 0
        while ids := await self.devices.lists.of_product(
            rule.tenant, str(rule.product), after, SWEPT_STATES
        ):
            await self.alarms.watch_silences(rule, ids, rule.updated_at)
            after = ids[-1]
