"""The rule index of ingest: which values may change a state."""

from typing import Any

import msgspec

from services.device.alarms.model import EventCondition, Rule, RuleCondition, State, ValueCondition
from services.device.alarms.rule_index import PossibleChange, RuleIndex, compile_rule

HOT = ValueCondition(property="t", comparison="GT", threshold=30, hysteresis=2)
ABOUT = ("t", 5, "p")


def rule(number: int = 1, condition: RuleCondition = HOT, **more: Any) -> Rule:
    fields = {"product": "p", **more}
    return Rule(
        id=number, tenant="t", name="r", severity="MAJOR", condition=condition,
        created_at=0, updated_at=0, changed=0, **fields,
    )  # fmt: skip


def state(status: Any, generation: int = 1, **more: Any) -> State:
    key = f"1.{generation}.5"
    return State(id=key, tenant="t", rule=1, generation=generation, device=5, status=status, **more)


def index(*rules: Rule) -> RuleIndex:
    found = RuleIndex()
    for one in rules:
        found.put(one)
    return found


def matter(known: RuleIndex, value: Any, ts: int = 1_000) -> list[int]:
    return [one.compiled.rule.id for one in known.find_changes_by_report(ABOUT, {"t": value}, ts)]


def test_a_value_matters_when_it_may_change_the_state():
    """A value matches when it is beyond in NORMAL, or back in RAISED."""
    known = index(rule(), rule(2, device=6, product=None), rule(3, enabled=False))
    assert [matter(known, value) for value in (20, 31, "x")] == [[], [1], []]
    known.set_state(state("RAISED"))
    assert [matter(known, value) for value in (20, 29, 31)] == [[1], [], []]
    known.set_state(state("NORMAL"))
    assert [matter(known, value) for value in (20, 31)] == [[], [1]]


def test_any_value_matters_while_a_state_is_uncertain():
    """Any value matches while a state may be changing."""
    known, found = index(rule()), PossibleChange(compile_rule(rule()), 31)
    assert known.mark_uncertain_and_get_earliest(found, 5, until=9.0, ts=1_000) == 1_000
    assert known.mark_uncertain_and_get_earliest(found, 5, until=10.0, ts=2_000) == 1_000
    assert [matter(known, value) for value in (20, 31)] == [[1], [1]]
    known.expire_uncertain_states(9.0)
    assert matter(known, 20) == [1]
    known.expire_uncertain_states(10.0)
    assert matter(known, 20) == []


def test_uncertainty_ends_while_the_device_keeps_reporting():
    """Readings that match for lack of certainty do not prolong it."""
    known = index(rule())
    (sure,) = known.find_changes_by_report(ABOUT, {"t": 31}, 1_000)
    known.mark_uncertain_and_get_earliest(sure, 5, until=10.0, ts=1_000)
    (unsure,) = known.find_changes_by_report(ABOUT, {"t": 20}, 2_000)
    assert known.mark_uncertain_and_get_earliest(unsure, 5, until=12.0, ts=2_000) == 1_000
    known.expire_uncertain_states(10.0)
    assert matter(known, 20) == []


def test_a_reading_that_is_older_than_the_last_change_may_undo_it():
    """An earlier reading may interrupt a duration, or begin it earlier."""
    known = index(rule(condition=msgspec.structs.replace(HOT, seconds=60)))
    known.set_state(state("RAISED", at=61_000, since=1_000))
    assert [matter(known, 29, ts) for ts in (60_999, 61_000)] == [[1], []]
    known.set_state(state("PENDING", at=70_000, since=70_000))
    assert [matter(known, 31, ts) for ts in (69_999, 70_001, 130_000)] == [[1], [], [1]]


def test_a_state_of_an_older_generation_is_ignored():
    """States of older generations are ignored."""
    known = index(rule(generation=2))
    known.set_state(state("RAISED"))
    assert matter(known, 31) == [1]
    known.set_state(state("RAISED", generation=2))
    known.set_state(state("NORMAL"))
    assert [matter(known, value) for value in (20, 31)] == [[1], []]


def test_events_match_by_name_until_the_rule_is_removed():
    """Events match rules of their device or product; removed rules do not match."""
    smoke = EventCondition(event="smoke", ended_by="clear")
    known = index(rule(), rule(2, smoke))
    assert [one.compiled.rule.id for one in known.find_changes_by_event(ABOUT, "smoke", 1)] == [2]
    assert list(known.find_changes_by_event(ABOUT, "clear", 1)) == []
    known.remove(2)
    known.put(rule(1, enabled=False))
    assert (list(known.find_changes_by_event(ABOUT, "smoke", 1)), known.has_rules("t")) == (
        [],
        False,
    )
