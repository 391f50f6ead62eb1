"""The rules of all tenants by what they are about, and what is known of their states. No I/O."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.device.alarms.condition_checks import Judge, Verdict, judge_of, value_at
from services.device.alarms.decision import matters
from services.device.alarms.model import (
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

Subject = tuple[str, int, str]
"""Tenant, device and product of an event."""
Target = tuple[str, int | str]
"""Tenant, and the id of a device or the name of a product."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule, and what judges values by it; a silence judges none."""

    rule: Rule
    judge: Judge


class Found(NamedTuple):
    """A rule whose state a reading may change."""

    compiled: Compiled
    value: Any
    is_sure: bool = True
    """Whether it may do so by the state that is known; else the state may be another by now."""


@dataclass(slots=True)
class Looked:
    """The rules that look at one property, and the numbers that are beyond none of them."""

    path: tuple[str, ...]
    rules: list[Compiled] = field(default_factory=list)
    above: float = -math.inf
    below: float = math.inf
    ordered: bool = True
    """Whether all of them compare numbers."""

    def add(self, one: Compiled, condition: ValueCondition) -> None:
        """Add a rule."""
        self.rules.append(one)
        threshold = condition.threshold
        if isinstance(threshold, (bool, str)):
            self.ordered = False
        elif condition.comparison in ("GT", "GTE"):
            self.below = min(self.below, threshold)
        elif condition.comparison in ("LT", "LTE"):
            self.above = max(self.above, threshold)
        else:
            self.ordered = False

    def quiet(self, value: Any) -> bool:
        """Whether a value surely is beyond no threshold."""
        number = type(value) is float or type(value) is int
        return number and self.ordered and self.above < value < self.below


class _Known(NamedTuple):
    """The part of a state that ingest knows."""

    generation: int
    status: str
    at: int
    """ms: the newest time at which the status ever changed."""
    since: int
    """ms: since when a PENDING value is beyond its threshold."""


_NORMAL = _Known(0, "NORMAL", 0, 0)


class _Doubt(NamedTuple):
    """A state that may be another one by now."""

    until: float
    """Monotonic."""
    earliest: int
    """ms: the time of the oldest reading that was pointed at and may not be evaluated yet."""


@dataclass(slots=True)
class Plan:
    """The rules of one target, by what they look at."""

    properties: dict[str, Looked] = field(default_factory=dict)
    """By path, as rules name it."""
    events: dict[str, list[Compiled]] = field(default_factory=lambda: defaultdict(list))
    silences: list[Compiled] = field(default_factory=list)

    def add(self, one: Compiled) -> None:
        """Add a rule."""
        condition = one.rule.condition
        match condition:
            case ValueCondition():
                path = condition.property
                if path not in self.properties:
                    self.properties[path] = Looked(tuple(path.split(".")))
                self.properties[path].add(one, condition)
            case EventCondition():
                for event in {condition.event, condition.ended_by} - {None}:
                    self.events[str(event)].append(one)
            case SilenceCondition():
                self.silences.append(one)


def compiled(rule: Rule) -> Compiled:
    """A rule with what judges by it."""
    if isinstance(rule.condition, SilenceCondition):
        return Compiled(rule, lambda _: None)
    return Compiled(rule, judge_of(rule.condition))


class RuleIndex:
    """The rules that decide something; each is compiled once."""

    def __init__(self) -> None:
        self._rules: dict[int, Compiled] = {}
        self._targets: dict[Target, dict[int, Compiled]] = defaultdict(dict)
        self._plans: dict[Target, Plan] = {}
        self._tenants: dict[str, int] = defaultdict(int)
        self._states: dict[int, dict[int, _Known]] = defaultdict(dict)
        """By device and rule: those that are not NORMAL."""
        self._unsure: dict[int, dict[int, _Doubt]] = defaultdict(dict)
        """By device and rule."""

    def has(self, tenant: str) -> bool:
        """Whether a tenant has a rule."""
        return tenant in self._tenants

    def put(self, rule: Rule) -> None:
        """Add a rule, or take it anew; one that decides nothing goes."""
        self.remove(rule.id)
        if rule.alive:
            self._rules[rule.id] = self._targets[_target(rule)][rule.id] = compiled(rule)
            self._tenants[rule.tenant] += 1
            self._plans.pop(_target(rule), None)

    def remove(self, rule_id: int) -> None:
        """Drop a rule; it may be unknown."""
        gone = self._rules.pop(rule_id, None)
        if gone is None:
            return
        rule, target = gone.rule, _target(gone.rule)
        self._plans.pop(target, None)
        del self._targets[target][rule_id]
        if not self._targets[target]:
            del self._targets[target]
        self._tenants[rule.tenant] -= 1
        if not self._tenants[rule.tenant]:
            del self._tenants[rule.tenant]

    def know(self, state: State) -> None:
        """Remember where a state stands, unless that of a newer generation is known."""
        if (
            self._states.get(state.device, {}).get(state.rule, _NORMAL).generation
            > state.generation
        ):
            return
        if state.status != "NORMAL":
            found = _Known(state.generation, state.status, state.at, state.since)
            self._states[state.device][state.rule] = found
        elif known := self._states.get(state.device):
            known.pop(state.rule, None)
            if not known:
                del self._states[state.device]

    def doubt(self, found: Found, device: int, until: float, ts: int) -> int:
        """A state is about to change: until then (monotonic) any value of the device matters.

        `ts` is the time (ms) of the reading that is pointed at; returns that of the oldest one
        since the state was in no doubt. A reading that matters only because of a doubt does not
        prolong it: else each report of a busy device would be pointed at for ever.
        """
        known = self._unsure[device].get(rule_id := found.compiled.rule.id, _Doubt(until, ts))
        earliest = min(ts, known.earliest)
        self._unsure[device][rule_id] = _Doubt(until if found.is_sure else known.until, earliest)
        return earliest

    def forget_doubts(self, now: float) -> None:
        """Drop the doubts that were until now (monotonic)."""
        for device, rules in list(self._unsure.items()):
            left = {rule: doubt for rule, doubt in rules.items() if doubt.until > now}
            if left:
                self._unsure[device] = left
            else:
                del self._unsure[device]

    def reported(self, about: Subject, properties: Mapping[str, Any], ts: int) -> Iterator[Found]:
        """The rules whose state a report of a time (ms) may change, each with its value."""
        device = about[1]
        normal = device not in self._states and device not in self._unsure
        for plan in self._plans_of(*about):
            for looked in plan.properties.values():
                value = value_at(properties, looked.path)
                if value is None or (normal and looked.quiet(value)):
                    continue
                for one in looked.rules:
                    if normal:
                        if one.judge(value) is Verdict.BEYOND:
                            yield Found(one, value)
                    elif found := self._found(one, device, value, ts):
                        yield found
            for one in plan.silences:
                if self._known(one.rule, device).status == "RAISED":
                    yield Found(one, None)

    def occurred(self, about: Subject, event: str, ts: int) -> Iterator[Found]:
        """The same of an event of the TSL."""
        for plan in self._plans_of(*about):
            for one in plan.events.get(event, ()):
                if found := self._found(one, about[1], event, ts):
                    yield found

    def _found(self, one: Compiled, device: int, value: Any, ts: int) -> Found | None:
        verdict = one.judge(value)
        if verdict is None:
            return None
        state = self._known(one.rule, device)
        seconds = getattr(one.rule.condition, "seconds", 0)
        lasts = ts - state.since >= seconds * 1000
        if matters(state.status, verdict, earlier=ts < state.at, lasts=lasts):
            return Found(one, value)
        unsure = one.rule.id in self._unsure.get(device, ())
        return Found(one, value, is_sure=False) if unsure else None

    def _known(self, rule: Rule, device: int) -> "_Known":
        known = self._states.get(device)
        state = known.get(rule.id) if known else None
        return state if state is not None and state.generation == rule.generation else _NORMAL

    def _plans_of(self, tenant: str, device: int, product: str) -> Iterator[Plan]:
        targets: Iterable[Target] = ((tenant, device), (tenant, product))
        for target in targets:
            rules = self._targets.get(target)
            if rules:
                plan = self._plans.get(target)
                if plan is None:
                    plan = self._plans[target] = Plan()
                    for one in rules.values():
                        plan.add(one)
                yield plan


def _target(rule: Rule) -> Target:
    return rule.tenant, rule.device if rule.device is not None else str(rule.product)
