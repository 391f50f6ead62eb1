"""The simulator's wheel: each key has its turn, and no more of them than it should."""

import random

from services.management.builtin.simulator import PeriodicSchedule


def wheel() -> PeriodicSchedule:
    return PeriodicSchedule(random.Random(1))


def test_a_key_has_its_first_turn_within_its_interval():
    """So a thousand devices of one interval are spread over it."""
    made = wheel()
    for key in range(1000):
        made.schedule(key, 10, now=0)
    first_half = made.pop_due(5)
    second_half = made.pop_due(10)
    assert sorted(first_half + second_half) == list(range(1000))
    assert 400 < len(first_half) < 600


def test_turns_come_back_in_step():
    """One interval after the last one, wherever the clock is asked in between."""
    made = wheel()
    made.schedule(1, 10, now=0)
    first = made.next_due()
    assert made.pop_due(first) == [1]
    assert made.pop_due(first + 9.9) == []
    assert made.next_due() == first + 10
    assert made.pop_due(first + 10.5) == [1]
    assert made.next_due() == first + 20


def test_missed_turns_are_not_made_up_for():
    """After a long pause there is one turn, not a flood."""
    made = wheel()
    made.schedule(1, 1, now=0)
    assert made.pop_due(1000) == [1]
    assert made.pop_due(1000.9) == []
    assert made.pop_due(1001) == [1]


def test_a_key_put_again_keeps_its_turn():
    """Only another interval changes the turn."""
    made = wheel()
    made.schedule(1, 10, now=0)
    due = made.next_due()
    made.schedule(1, 10, now=5)
    assert made.pop_due(due) == [1]
    made.schedule(1, 2, now=due)
    assert made.pop_due(due + 2) == [1]
    assert made.pop_due(due + 2) == []


def test_a_removed_key_has_no_turn():
    """Removing an unknown key raises no error."""
    made = wheel()
    made.schedule(1, 10, now=0)
    made.remove(1)
    made.remove(2)
    assert 1 not in made
    assert made.pop_due(100) == []
