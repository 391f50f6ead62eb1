"""Evaluation of rules, requested by ingest or due by time.

An evaluation request reports only that a state may change. History contains the readings in their
order, and each report is stored before an evaluation is requested. Requests may therefore arrive
twice, late, or in another process, and each transition still happens once. An evaluation waits for
earlier messages that are not stored yet (docs/decisions/0031).

Requests of a batch are merged: each rule and device is evaluated once. One read of history serves
all rules of a device, and their states are written together (docs/decisions/0052).

`DueStateSweep` evaluates changes by time alone: silences, durations, and changed rules. One replica
runs it, and tenants take turns. States hold when they are due, so after a crash the next replica
continues with the original times.
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
from libs.common.bus.publishing import acknowledge, redeliver_later
from libs.common.bus.subjects import alarm_check_event
from libs.common.clock import now_ms
from libs.common.decoding import JSON_ERRORS
from libs.common.scheduling import FairScheduler
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.device.alarms import row_sources
from services.device.alarms.decision import decide_silence
from services.device.alarms.evaluations import (
    DeviceEvaluations,
    Evaluation,
    EvaluationAndUpdate,
    HistoryRead,
    group_by_device,
    merge_requests,
)
from services.device.alarms.events import EvaluationRequest, decode_request
from services.device.alarms.model import ALARMS_TOPIC, Rule, SilenceCondition, State, new_state
from services.device.alarms.row_sources import (
    StoredReport,
    UnstoredMessage,
    UplinkReader,
    history_field,
)
from services.device.alarms.rule_index import compile_rule
from services.device.alarms.rules import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore

log = logging.getLogger(__name__)

CONSUMER_NAME = "alarms"
SUBJECTS = (
    alarm_check_event("*", "*"),
    *(f"event.*.device.*.{change}" for change in ("added", "updated", "deleted")),
)
EVENTS_PER_BATCH = 1000
"""Maximum events of a batch; other replicas take the next ones."""
ACK_WAIT_SECONDS = 30.0
"""Seconds after which events of a crashed process are delivered again."""
RETRY_SECONDS = 0.5
"""Seconds until an evaluation that waits for unstored messages is repeated."""
CONCURRENT_TENANTS = 4
"""Tenants whose events a process handles at the same time."""
CONCURRENT_READS = 8
"""Devices whose history a process reads at the same time."""
DEVICES_PER_WRITE = 50
"""Devices whose states are read and written together."""
MAX_BATCH_SECONDS = 10.0
"""Maximum seconds of work on a batch; then its remaining requests are delivered again."""
MAX_HISTORY_ROWS = 20_000
"""History rows after which a read of a device ends, but not before its states' newest change."""
DeviceIdsToRetry = set[int]
"""Ids of devices whose evaluations must be repeated: the bus delivers their requests again."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates states; one per process."""

    rules: RuleStore
    alarms: AlarmStore
    history: row_sources.HistoryReader
    devices: DeviceStore
    latest: LatestValues
    uplink: UplinkReader
    readers: FairScheduler = field(
        default_factory=lambda: FairScheduler("alarms", CONCURRENT_READS)
    )

    async def evaluate_events(
        self, tenant: str, events: Iterable[tuple[str, bytes]]
    ) -> DeviceIdsToRetry:
        """Evaluate rules for events of a tenant, given as subjects and bodies. Repeatable.

        Returns the devices whose requests must be delivered again. Raises `StoreError`,
        `Unavailable`.
        """
        requests, changed = list[EvaluationRequest](), set[int]()
        for subject, body in events:
            _, _, kind, device, *_ = subject.split(".")
            if kind == "device":
                changed.add(int(device))
            elif request := _decode_request(subject, body):
                requests.append(request)
        for first in range(0, len(changed), DEVICES_PER_WRITE):
            await self._adapt_to_device_changes(
                tenant, set(list(changed)[first : first + DEVICES_PER_WRITE])
            )
        ids = {rule for request in requests for rule in request.values}
        if not ids:
            return set()
        rules = await self.rules.find_all(list(ids))
        compiled = {rule_id: compile_rule(rule) for rule_id, rule in rules.items()}
        evaluations = merge_requests(requests, compiled)
        requests.clear()  # may free many MiB
        await self._reload_states(evaluations)
        return await self._evaluate(tenant, evaluations)

    async def evaluate_due(self, tenant: str, due: Iterable[tuple[Rule, State]]) -> None:
        """Evaluate due states of a tenant; postpone those that must wait."""
        now, evaluations = now_ms(), list[Evaluation]()
        for rule, state in due:
            oldest = 0 if state.settles is not None and state.settles <= now else sys.maxsize
            evaluations.append(Evaluation(compile_rule(rule), state, oldest))
        states = [item.state for item in evaluations]
        waiting, later = (
            await self._evaluate(tenant, evaluations),
            now_ms() + int(RETRY_SECONDS * 1000),
        )
        await self.alarms.postpone_states(
            [(state, later) for state in states if state.device in waiting]
        )

    async def _reload_states(self, evaluations: Collection[Evaluation]) -> None:
        stored = await self.alarms.find_states([item.state.id for item in evaluations])
        for item in evaluations:
            fresh = new_state(item.compiled.rule, item.state.device)
            item.state = stored.get(fresh.id, fresh)

    async def _evaluate(self, tenant: str, evaluations: Sequence[Evaluation]) -> DeviceIdsToRetry:
        """Evaluate states; return the devices whose requests must be delivered again."""
        until, waiting = time.monotonic() + MAX_BATCH_SECONDS, set[int]()
        states = [item.state for item in evaluations]
        ids = {state.device for state in states}
        serials = {
            device.id: device.sn for device in await self.devices.queries.list_by_ids(tenant, ids)
        }
        await self.alarms.end_states([state for state in states if state.device not in serials])
        remaining = group_by_device(evaluations, serials)
        while remaining and time.monotonic() < until:
            batch, remaining = remaining[:DEVICES_PER_WRITE], remaining[DEVICES_PER_WRITE:]
            jobs = [self.readers.run(tenant, partial(self._decide, device)) for device in batch]
            decided = await asyncio.gather(*jobs)
            settled = await self.alarms.apply_if_unchanged(
                [decision for each in decided for _, decision in each]
            )
            waiting.update(device.device for device in batch if device.must_wait)
            for device, each in zip(batch, decided, strict=True):
                if overtaken := [
                    item for item, decision in each if decision.before.id not in settled
                ]:
                    await self._reload_states(overtaken)
                    remaining.append(DeviceEvaluations(device.device, device.sn, overtaken))
        return waiting | {device.device for device in remaining}

    async def _decide(self, device: DeviceEvaluations) -> list[EvaluationAndUpdate]:
        """Read history that the evaluations of a device need, and decide."""
        history_fields = {history_field(condition) for condition in device.history_conditions()}
        if not history_fields:
            return await self._decide_silences(device)
        stored, missing, complete = await self._read_history(device, history_fields)
        decisions = list[EvaluationAndUpdate]()
        for decision in device.decide_all(stored, missing, now_ms(), complete=complete):
            decisions.append(decision)
            await asyncio.sleep(0)  # lets other tasks run between long decisions
        return decisions

    async def _decide_silences(self, device: DeviceEvaluations) -> list[EvaluationAndUpdate]:
        if await self._find_unstored(device, 0) is not None:
            device.must_wait = True
            return []
        newest = (await self.latest.find_arrival_times([device.device])).get(device.device)
        return [
            (item, item.to_update(*decide_silence(condition, item.state, newest, now_ms())))
            for item in device.evaluations
            if isinstance(condition := item.compiled.rule.condition, SilenceCondition)
        ]

    async def _read_history(
        self, device: DeviceEvaluations, history_fields: Collection[str]
    ) -> HistoryRead:
        """Read the history of a device from the earliest start of its evaluations on.

        At least all rows up to the newest known change of the states are read.
        """
        now, after, missing, stored = now_ms(), 0, None, list[StoredReport]()
        at = min(item.find_start(now).at for item in device.evaluations)
        newest_known = max(max(item.state.newest, item.state.at) for item in device.evaluations)
        sequence = 0
        while True:
            unstored = await self._find_unstored(device, after)
            more = await self.history.read_since(history_fields, device.device, at, sequence)
            if unstored is not None and any(row.sequence == unstored.sequence for row in more):
                after = unstored.sequence
                continue
            stored, missing = stored + more, missing or unstored
            complete = len(more) < row_sources.ROWS_PER_READ
            if complete or (len(stored) >= MAX_HISTORY_ROWS and more[-1].ts > newest_known):
                return HistoryRead(stored, missing, complete)
            at, sequence = more[-1].ts, more[-1].sequence

    async def _find_unstored(self, device: DeviceEvaluations, after: int) -> UnstoredMessage | None:
        requested = {row.sequence for item in device.evaluations for row in item.requested}
        stream_hints = requested or {item.state.sequence for item in device.evaluations}
        return await self.uplink.find_first_unstored(device.sn, after, stream_hints, requested)

    async def _adapt_to_device_changes(self, tenant: str, devices: set[int]) -> None:
        """Adapt stored rules and states to devices that are new, changed or deleted.

        Rules and alarms of a deleted device are deleted. Alarms of rules that no longer concern a
        device end. States of silence rules are created.
        """
        models_by_device = {
            id_.id: id_.model for id_ in await self.devices.queries.list_by_ids(tenant, devices)
        }
        for deleted_device in devices - models_by_device.keys():
            await self.rules.mark_deleted_for_device(tenant, deleted_device)
            await self.alarms.delete_for_device(deleted_device)
        rules = await self.rules.list_active_for_devices(tenant, models_by_device)
        for model in set(models_by_device.values()):
            model_devices = [
                entry for entry in models_by_device if models_by_device[entry] == model
            ]
            model_rules = [
                rule for rule in rules if rule.product == model or rule.device in model_devices
            ]
            rule_ids = [rule.id for rule in model_rules]
            await self.alarms.end_states(
                await self.alarms.list_states_of_other_rules(model_devices, rule_ids)
            )
            for rule in model_rules:
                if isinstance(rule.condition, SilenceCondition):
                    watched = model_devices if rule.device is None else [rule.device]
                    await self.alarms.create_silence_states(rule, watched, now_ms())


def _decode_request(subject: str, body: bytes) -> EvaluationRequest | None:
    try:
        return decode_request(body)
    except JSON_ERRORS as error:
        log.warning("invalid evaluation request at %s: %s", subject, error)
        return None


def build_consumer(bus: Bus, evaluator: Evaluator) -> BatchConsumer:
    """Return the consumer that all replicas share.

    It acknowledges an event when the result of its evaluation is stored.
    """

    async def evaluate_messages(messages: list[Msg]) -> None:
        with trace_batch("alarms batch", [read_trace(message.headers) for message in messages]):
            events = ((message.subject, message.data) for message in messages)
            waiting = await evaluator.evaluate_events(event_tenant(messages[0]), events)
            late = {
                message.reply
                for message in messages
                if int(message.subject.split(".")[3]) in waiting
            }
            await redeliver_later(bus.client, dict.fromkeys(late, RETRY_SECONDS))
            await acknowledge(
                bus.client, (message for message in messages if message.reply not in late)
            )

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=CONSUMER_NAME,
        handle=evaluate_messages,
        lane=event_tenant,
        batch=EVENTS_PER_BATCH,
        concurrency=CONCURRENT_TENANTS,
        ack_wait=ACK_WAIT_SECONDS,
        subjects=SUBJECTS,
        from_now=True,
    )


QUERY_INTERVAL_SECONDS = 0.5
"""Seconds between two queries for due states."""
STATES_PER_TURN = 500
"""Maximum states of a tenant that are handled in one turn."""
CONCURRENT_TURNS = 8
"""Tenants whose due states a process evaluates at the same time."""


@dataclass(frozen=True)
class DueStateSweep:
    """Evaluates states that are due by time."""

    rules: RuleStore
    alarms: AlarmStore
    evaluator: Evaluator
    devices: DeviceStore
    latest: LatestValues

    async def run(self) -> None:
        """Run until cancelled. Only the replica with the lease calls this."""
        wake = self.alarms.wakeups.create_event(ALARMS_TOPIC)
        await take_turns(
            "due alarms",
            CONCURRENT_TURNS,
            self._find_due_tenants,
            self._sweep_tenant,
            QUERY_INTERVAL_SECONDS,
            wake,
            self._find_due_tenants,
        )

    async def _find_due_tenants(self, within: float = 0) -> set[str]:
        moment = now_ms() + int(within * 1000)
        return {
            *await self.rules.list_pending_tenants(),
            *await self.alarms.list_due_tenants(moment),
        }

    async def _sweep_tenant(self, tenant: str) -> TenantSteps:
        """Apply rule changes and evaluate due states of a tenant, step by step."""
        for rule in await self.rules.list_pending_changes(tenant):
            await self._apply_rule_change(rule)
            yield
        while await self.sweep_states(tenant):
            yield

    async def sweep_states(self, tenant: str) -> bool:
        """Evaluate due states of a tenant; return whether there may be more."""
        states = await self.alarms.list_due_states(tenant, now_ms(), STATES_PER_TURN)
        rules = await self.rules.find_all(list({state.rule for state in states}))
        due: list[tuple[Rule, State]] = []
        silences: list[tuple[Rule, State]] = []
        ended: list[State] = []
        for state in states:
            rule = rules.get(state.rule)
            if rule is None or not rule.is_active or rule.generation != state.generation:
                ended.append(state)
            elif isinstance(rule.condition, SilenceCondition) and state.status == "NORMAL":
                silences.append((rule, state))
            else:
                due.append((rule, state))
        await self.alarms.end_states(ended, delete=True)
        await self.evaluator.evaluate_due(
            tenant, [*due, *await self._postpone_unless_silent(silences)]
        )
        return len(states) == STATES_PER_TURN

    async def _postpone_unless_silent(
        self, states: list[tuple[Rule, State]]
    ) -> list[tuple[Rule, State]]:
        """Return the states of silent devices; postpone the others."""
        newest = await self.latest.find_arrival_times([state.device for _, state in states])
        later, silent = list[tuple[State, int]](), list[tuple[Rule, State]]()
        for rule, state in states:
            if isinstance(silence := rule.condition, SilenceCondition):
                last_report = newest.get(state.device)
                after, changes = decide_silence(silence, state, last_report, now_ms())
                if changes or after.due is None:
                    silent.append((rule, state))
                else:
                    later.append((state, after.due))
        await self.alarms.postpone_states(later)
        return silent

    async def _apply_rule_change(self, rule: Rule) -> None:
        """End states of older generations; start to watch silences."""
        while states := await self.alarms.list_outdated_states(rule, STATES_PER_TURN):
            await self.alarms.end_states(states, delete=True)
        if rule.is_active and isinstance(rule.condition, SilenceCondition):
            await self._create_silence_states(rule)
        await self.rules.finish_change(rule)

    async def _create_silence_states(self, rule: Rule) -> None:
        if rule.device is not None:
            await self.alarms.create_silence_states(rule, [rule.device], rule.updated_at)
            return
        after = 0
        while ids := await self.devices.queries.list_ids_of_product(
            rule.tenant, str(rule.product), after, STATES_PER_TURN
        ):
            await self.alarms.create_silence_states(rule, ids, rule.updated_at)
            after = ids[-1]
