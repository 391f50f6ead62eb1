"""Index of the rules of all tenants by target, and known states. No I/O."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.device.alarms.condition_checks import ConditionCheck, Verdict, compile_check, value_at
from services.device.alarms.decision import may_change_status
from services.device.alarms.model import (
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

ReportSource = tuple[str, int, str]
"""Tenant, device and product of a report."""
RuleTarget = tuple[str, int | str]
"""Tenant, and the id of a device or the model of a product."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule and the check of its condition; a silence checks no value."""

    rule: Rule
    check: ConditionCheck


class PossibleChange(NamedTuple):
    """A rule whose state a reading may change."""

    compiled: CompiledRule
    value: Any
    is_certain: bool = True
    """False if the known state may be outdated, so that any value matches."""


@dataclass(slots=True)
class PropertyRules:
    """Rules of one property, and the range of numbers that meets no condition."""

    path: tuple[str, ...]
    rules: list[CompiledRule] = field(default_factory=list)
    above: float = -math.inf
    below: float = math.inf
    ordered: bool = True
    """Whether each rule compares numbers by greater or less, so that a range can exclude it."""

    def add_rule(self, compiled: CompiledRule, condition: ValueCondition) -> None:
        """Add a rule, and narrow the range of numbers that meet no condition."""
        self.rules.append(compiled)
        threshold = condition.threshold
        if isinstance(threshold, (bool, str)):
            self.ordered = False
        elif condition.comparison in ("GT", "GTE"):
            self.below = min(self.below, threshold)
        elif condition.comparison in ("LT", "LTE"):
            self.above = max(self.above, threshold)
        else:
            self.ordered = False

    def certainly_meets_no_condition(self, value: Any) -> bool:
        """Return True only for a number between `above` and `below`, which meets no condition."""
        number = type(value) is float or type(value) is int
        return number and self.ordered and self.above < value < self.below


class _KnownState(NamedTuple):
    """Fields of a state that ingest needs."""

    generation: int
    status: str
    at: int
    """Newest time at which the status changed, ms."""
    since: int
    """Time since which a PENDING value is beyond its threshold, ms."""


_NORMAL_STATE = _KnownState(0, "NORMAL", 0, 0)


class _UncertainState(NamedTuple):
    """A state for which an evaluation was requested, so that it may change soon."""

    until: float
    """Monotonic time after which the state is certain."""
    earliest: int
    """Time of the oldest requested reading that is possibly not evaluated yet, ms."""


@dataclass(slots=True)
class TargetRules:
    """Rules of one target by property, event or silence."""

    properties: dict[str, PropertyRules] = field(default_factory=dict)
    """Rules of each property, by its path such as `location.latitude`."""
    events: dict[str, list[CompiledRule]] = field(default_factory=lambda: defaultdict(list))
    silences: list[CompiledRule] = field(default_factory=list)

    def add_rule(self, compiled: CompiledRule) -> None:
        """Add a rule."""
        condition = compiled.rule.condition
        match condition:
            case ValueCondition():
                path = condition.property
                if path not in self.properties:
                    self.properties[path] = PropertyRules(tuple(path.split(".")))
                self.properties[path].add_rule(compiled, condition)
            case EventCondition():
                for event in {condition.event, condition.ended_by} - {None}:
                    self.events[str(event)].append(compiled)
            case SilenceCondition():
                self.silences.append(compiled)


def compile_rule(rule: Rule) -> CompiledRule:
    """Return a rule with the check of its condition."""
    if isinstance(rule.condition, SilenceCondition):
        return CompiledRule(rule, lambda _: None)
    return CompiledRule(rule, compile_check(rule.condition))


class RuleIndex:
    """The active rules, each compiled once, and the known states of devices."""

    def __init__(self) -> None:
        self._rules: dict[int, CompiledRule] = {}
        self._targets: dict[RuleTarget, dict[int, CompiledRule]] = defaultdict(dict)
        self._plans: dict[RuleTarget, TargetRules] = {}
        self._tenants: dict[str, int] = defaultdict(int)
        self._states: dict[int, dict[int, _KnownState]] = defaultdict(dict)
        """States that are not NORMAL, by device and rule."""
        self._uncertain: dict[int, dict[int, _UncertainState]] = defaultdict(dict)
        """States that may change soon, by device and rule."""

    def has_rules(self, tenant: str) -> bool:
        """Return whether a tenant has an active rule."""
        return tenant in self._tenants

    def put(self, rule: Rule) -> None:
        """Add or replace a rule; remove an inactive one."""
        self.remove(rule.id)
        if rule.is_active:
            self._rules[rule.id] = self._targets[_target(rule)][rule.id] = compile_rule(rule)
            self._tenants[rule.tenant] += 1
            self._plans.pop(_target(rule), None)

    def remove(self, rule_id: int) -> None:
        """Remove a rule, if it is known."""
        removed = self._rules.pop(rule_id, None)
        if removed is None:
            return
        rule, target = removed.rule, _target(removed.rule)
        self._plans.pop(target, None)
        del self._targets[target][rule_id]
        if not self._targets[target]:
            del self._targets[target]
        self._tenants[rule.tenant] -= 1
        if not self._tenants[rule.tenant]:
            del self._tenants[rule.tenant]

    def set_state(self, state: State) -> None:
        """Store the known state of a rule, unless a newer generation is known."""
        if (
            self._states.get(state.device, {}).get(state.rule, _NORMAL_STATE).generation
            > state.generation
        ):
            return
        if state.status != "NORMAL":
            new_state = _KnownState(state.generation, state.status, state.at, state.since)
            self._states[state.device][state.rule] = new_state
        elif states := self._states.get(state.device):
            states.pop(state.rule, None)
            if not states:
                del self._states[state.device]

    def mark_uncertain_and_get_earliest(
        self, match: PossibleChange, device: int, until: float, ts: int
    ) -> int:
        """Record that a state may change: any value matches until `until` (monotonic).

        `ts` is the time (ms) of the requested reading. Returns the oldest such time since the state
        was certain. A reading that matches only because the state is uncertain does not extend
        `until`, because then each report of a busy device would request an evaluation.
        """
        uncertain = self._uncertain[device].get(
            rule_id := match.compiled.rule.id, _UncertainState(until, ts)
        )
        earliest = min(ts, uncertain.earliest)
        self._uncertain[device][rule_id] = _UncertainState(
            until if match.is_certain else uncertain.until, earliest
        )
        return earliest

    def expire_uncertain_states(self, now: float) -> None:
        """Remove states whose uncertainty ended by `now` (monotonic)."""
        for device, rules in list(self._uncertain.items()):
            uncertain = {rule: entry for rule, entry in rules.items() if entry.until > now}
            if uncertain:
                self._uncertain[device] = uncertain
            else:
                del self._uncertain[device]

    def find_changes_by_report(
        self, source: ReportSource, properties: Mapping[str, Any], ts: int
    ) -> Iterator[PossibleChange]:
        """Yield the rules whose state a report at `ts` (ms) may change."""
        device = source[1]
        normal = device not in self._states and device not in self._uncertain
        for plan in self._find_target_rules(*source):
            for property_rules in plan.properties.values():
                value = value_at(properties, property_rules.path)
                if value is None or (normal and property_rules.certainly_meets_no_condition(value)):
                    continue
                for rule in property_rules.rules:
                    if normal:
                        if rule.check(value) is Verdict.BEYOND:
                            yield PossibleChange(rule, value)
                    elif match := self._find_possible_change(rule, device, value, ts):
                        yield match
            for silence in plan.silences:
                if self._find_state(silence.rule, device).status == "RAISED":
                    yield PossibleChange(silence, None)

    def find_changes_by_event(
        self, source: ReportSource, event: str, ts: int
    ) -> Iterator[PossibleChange]:
        """Yield the rules whose state an event at `ts` (ms) may change."""
        for plan in self._find_target_rules(*source):
            for compiled in plan.events.get(event, ()):
                if match := self._find_possible_change(compiled, source[1], event, ts):
                    yield match

    def _find_possible_change(
        self, compiled: CompiledRule, device: int, value: Any, ts: int
    ) -> PossibleChange | None:
        verdict = compiled.check(value)
        if verdict is None:
            return None
        state = self._find_state(compiled.rule, device)
        seconds = getattr(compiled.rule.condition, "seconds", 0)
        duration_ended = ts - state.since >= seconds * 1000
        if may_change_status(
            state.status, verdict, earlier=ts < state.at, duration_ended=duration_ended
        ):
            return PossibleChange(compiled, value)
        unsure = compiled.rule.id in self._uncertain.get(device, ())
        return PossibleChange(compiled, value, is_certain=False) if unsure else None

    def _find_state(self, rule: Rule, device: int) -> "_KnownState":
        states = self._states.get(device)
        state = states.get(rule.id) if states else None
        return state if state is not None and state.generation == rule.generation else _NORMAL_STATE

    def _find_target_rules(self, tenant: str, device: int, product: str) -> Iterator[TargetRules]:
        targets: Iterable[RuleTarget] = ((tenant, device), (tenant, product))
        for target in targets:
            rules = self._targets.get(target)
            if rules:
                plan = self._plans.get(target)
                if plan is None:
                    plan = self._plans[target] = TargetRules()
                    for rule in rules.values():
                        plan.add_rule(rule)
                yield plan


def _target(rule: Rule) -> RuleTarget:
    return rule.tenant, rule.device if rule.device is not None else str(rule.product)
