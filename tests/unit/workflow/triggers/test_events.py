"""Events that have to come again."""

from services.workflow.triggers.events import MAX_DELAY, DelayedEvents


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_event_comes_again_later_and_later_for_five_minutes():
    """Then it is given up: by its runs it is known for ten minutes only."""
    delayed = DelayedEvents(Clock())
    seconds = [delayed.delay("t", age) for age in (0, 0.9, 2, 4, 299, 300, 900)]
    assert seconds == [1, 1, 2, 4, MAX_DELAY, None, None]


def test_a_tenant_has_no_more_held_back_than_are_left_to_others():
    """Another tenant has room, and redelivered events are not counted."""
    clock = Clock()
    delayed = DelayedEvents(clock, most=8)
    assert [delayed.delay("busy", 1) for _ in range(5)] == [1, 1, 1, 1, None]
    assert delayed.delay("new", 1) == 1
    clock.now = 1.0
    assert delayed.delay("busy", 2) == 2
