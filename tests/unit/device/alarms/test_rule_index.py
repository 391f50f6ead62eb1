"""What ingest knows of rules and states: which values may change something."""

from typing import Any

import msgspec

from services.device.alarms.model import Condition, EventCondition, Rule, State, ValueCondition
from services.device.alarms.rule_index import RuleIndex, RuleMatch, compile_rule

HOT = ValueCondition(property="t", comparison="GT", threshold=30, hysteresis=2)
ABOUT = ("t", 5, "p")


def rule(number: int = 1, condition: Condition = HOT, **more: Any) -> Rule:
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
    return [one.compiled.rule.id for one in known.match_report(ABOUT, {"t": value}, ts)]


def test_a_value_matters_when_it_may_change_the_state():
    """Beyond the threshold in NORMAL, back again in RAISED."""
    known = index(rule(), rule(2, device=6, product=None), rule(3, enabled=False))
    assert [matter(known, value) for value in (20, 31, "x")] == [[], [1], []]
    known.set_state(state("RAISED"))
    assert [matter(known, value) for value in (20, 29, 31)] == [[1], [], []]
    known.set_state(state("NORMAL"))
    assert [matter(known, value) for value in (20, 31)] == [[], [1]]


def test_any_value_matters_while_a_state_is_in_doubt():
    """What was pointed at is changing."""
    known, found = index(rule()), RuleMatch(compile_rule(rule()), 31)
    assert known.mark_uncertain(found, 5, until=9.0, ts=1_000) == 1_000
    assert known.mark_uncertain(found, 5, until=10.0, ts=2_000) == 1_000
    assert [matter(known, value) for value in (20, 31)] == [[1], [1]]
    known.expire_uncertain(9.0)
    assert matter(known, 20) == [1]
    known.expire_uncertain(10.0)
    assert matter(known, 20) == []


def test_a_doubt_ends_though_the_device_goes_on_reporting():
    """Normal values are pointed at because of the doubt, and do not prolong it."""
    known = index(rule())
    (sure,) = known.match_report(ABOUT, {"t": 31}, 1_000)
    known.mark_uncertain(sure, 5, until=10.0, ts=1_000)
    (unsure,) = known.match_report(ABOUT, {"t": 20}, 2_000)
    assert known.mark_uncertain(unsure, 5, until=12.0, ts=2_000) == 1_000
    known.expire_uncertain(10.0)
    assert matter(known, 20) == []


def test_a_reading_that_is_older_than_the_last_change_may_undo_it():
    """One within the hysteresis interrupts a duration; one beyond the threshold begins it."""
    known = index(rule(condition=msgspec.structs.replace(HOT, seconds=60)))
    known.set_state(state("RAISED", at=61_000, since=1_000))
    assert [matter(known, 29, ts) for ts in (60_999, 61_000)] == [[1], []]
    known.set_state(state("PENDING", at=70_000, since=70_000))
    assert [matter(known, 31, ts) for ts in (69_999, 70_001, 130_000)] == [[1], [], [1]]


def test_a_state_of_an_older_generation_says_nothing():
    """Neither of a rule that has changed, nor over the state of the newer one."""
    known = index(rule(generation=2))
    known.set_state(state("RAISED"))
    assert matter(known, 31) == [1]
    known.set_state(state("RAISED", generation=2))
    known.set_state(state("NORMAL"))
    assert [matter(known, value) for value in (20, 31)] == [[1], []]


def test_events_are_found_by_name_and_rules_go():
    """Of the rules of the device or its product."""
    smoke = EventCondition(event="smoke", ended_by="clear")
    known = index(rule(), rule(2, smoke))
    assert [one.compiled.rule.id for one in known.match_event(ABOUT, "smoke", 1)] == [2]
    assert list(known.match_event(ABOUT, "clear", 1)) == []
    known.remove(2)
    known.put(rule(1, enabled=False))
    assert (list(known.match_event(ABOUT, "smoke", 1)), known.has_rules("t")) == ([], False)
