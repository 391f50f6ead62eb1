"""The rules of all tenants by what they are about, and what is known of their states. No I/O."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.device.alarms.deciding import Judge, judge_of, matters, value_at
from services.device.alarms.model import (
    EventCondition,
    Rule,
    SilenceCondition,
    State,
    ValueCondition,
)

Subject = tuple[str, int, str]
"""Tenant, device and product of an event."""
Looks = Collection[tuple[int, int]]
"""Rules and devices that are to be looked at."""
Target = tuple[str, int | str]
"""Tenant, and the id of a device or the name of a product."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule, and what judges values by it; a silence judges none."""

    rule: Rule
    judge: Judge


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
        self._states: dict[int, dict[int, tuple[int, int, str]]] = defaultdict(dict)
        """By device and rule: generation, revision and status; of a device without any, all rules
        are NORMAL."""

    def ids(self) -> set[int]:
        """The rules that are there."""
        return set(self._rules)

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
        """Remember a state, unless a newer one is known, or it never was other than NORMAL."""
        if not state.revision:
            return
        known, new = self._states[state.device], (state.generation, state.revision, state.status)
        if known.get(state.rule, (0, 0))[:2] <= new[:2]:
            known[state.rule] = new

    def forget_states(self) -> None:
        """Forget all states, before they are read anew."""
        self._states.clear()

    def of(self, tenant: str, device: int, product: str) -> list[Compiled]:
        """The rules that are about a device."""
        targets: Iterable[Target] = ((tenant, device), (tenant, product))
        return [one for target in targets for one in self._targets.get(target, {}).values()]

    def reported(
        self, about: Subject, properties: Mapping[str, Any], looks: Looks
    ) -> Iterator[tuple[Compiled, Any]]:
        """The rules whose state a report may change, each with its value.

        After what is in `looks`, which is yet to be done, any value may.
        """
        device = about[1]
        normal = not looks and device not in self._states
        for plan in self._plans_of(*about):
            for looked in plan.properties.values():
                value = value_at(properties, looked.path)
                if value is None or (normal and looked.quiet(value)):
                    continue
                for one in looked.rules:
                    if self._matters(one, device, value, looks):
                        yield one, value
            for one in plan.silences:
                if self._status(one.rule, device) == "RAISED":
                    yield one, None

    def occurred(self, about: Subject, event: str, looks: Looks) -> Iterator[tuple[Compiled, Any]]:
        """The same of an event of the TSL."""
        for plan in self._plans_of(*about):
            for one in plan.events.get(event, ()):
                if self._matters(one, about[1], event, looks):
                    yield one, event

    def _matters(self, one: Compiled, device: int, value: Any, looks: Looks) -> bool:
        verdict = one.judge(value)
        if verdict is None:
            return False
        return matters(self._status(one.rule, device), verdict) or (one.rule.id, device) in looks

    def _status(self, rule: Rule, device: int) -> str:
        known = self._states.get(device)
        state = known.get(rule.id) if known else None
        return state[2] if state is not None and state[0] == rule.generation else "NORMAL"

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
