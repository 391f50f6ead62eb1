"""Which import of a tenant goes on next."""

from datetime import UTC, datetime

from services.device.registry.imports.store import Import
from services.device.registry.imports.worker import ImportBackoff


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
        state="RUNNING",
        total=0,
        created=0,
        updated=0,
        failed=0,
        created_at=datetime.now(UTC),
    )


def test_an_import_that_cannot_go_on_pauses_and_the_next_one_of_its_tenant_goes_on():
    """Twice as long each time, up to half a minute; a reason is told when it changes."""
    pauses, now = ImportBackoff(), 0.0
    first, second = job(1, "a"), job(2, "a")
    assert pauses.record_failure(first, now, "away")
    assert pauses.find_ready([first, second], now) == second
    seconds = []
    for _ in range(7):
        begun = now
        while pauses.find_ready([first], now) is None:
            now += 1.0
        seconds.append(now - begun)
        assert not pauses.record_failure(first, now, "away")
    assert seconds == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert pauses.record_failure(first, now, "broken")
    pauses.reset(first)
    assert pauses.find_ready([first], now) == first
    assert pauses.record_failure(first, now, "away")
