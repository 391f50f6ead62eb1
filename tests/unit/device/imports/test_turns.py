"""Whose import goes on next."""

from datetime import UTC, datetime

from services.device.imports.store import Import
from services.device.imports.turns import Turns


def job(number: int, tenant: str) -> Import:
    """An import under way."""
    return Import(
        id=number,
        tenant=tenant,
        user_id=7,
        super_admin=True,
        access=0,
        integration="lamps",
        columns=[],
        created_at=datetime.now(UTC),
    )


def test_who_waited_longest_goes_first_and_of_a_tenant_one_at_a_time():
    """A tenant that has had its turn goes behind those that wait."""
    turns = Turns()
    first, second, other = job(1, "a"), job(2, "a"), job(3, "b")
    assert turns.next([first, second], set(), 0.0) == [first]
    assert turns.next([first, second, other], {"a"}, 1.0) == [other]
    turns.went(first, 2.0)
    assert turns.next([first, second, other], set(), 3.0) == [other, first]


def test_an_import_that_cannot_go_on_pauses_and_the_next_one_of_its_tenant_goes_on():
    """Twice as long each time, up to half a minute; a reason is told when it changes."""
    turns, now = Turns(), 0.0
    first, second = job(1, "a"), job(2, "a")
    assert turns.failed(first, now, "away")
    assert turns.next([first, second], set(), now) == [second]
    pauses = []
    for _ in range(7):
        begun = now
        while turns.next([first], set(), now) == []:
            now += 1.0
        pauses.append(now - begun)
        assert not turns.failed(first, now, "away")
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert turns.failed(first, now, "broken")
    turns.went(first, now)
    assert turns.next([first], set(), now) == [first]
    assert turns.failed(first, now, "away")
