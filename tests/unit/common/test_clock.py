"""Times in ms and moments."""

from datetime import UTC, datetime, timedelta, timezone

import bson
import pytest

from libs.common.clock import from_ms, now_ms, to_ms


@pytest.mark.parametrize("ms", [0, 1, 999, 1_795_270_889_557, 253_402_300_799_999])
def test_a_time_in_ms_survives_being_a_moment(ms: int) -> None:
    """What is stored as a moment comes back as the same ms."""
    assert to_ms(from_ms(ms)) == ms


def test_a_moment_of_any_zone_has_the_same_ms() -> None:
    """The zone of a moment does not change when it was."""
    east = datetime(2026, 11, 21, 16, 30, tzinfo=timezone(timedelta(hours=2)))

    assert to_ms(east) == to_ms(datetime(2026, 11, 21, 14, 30, tzinfo=UTC))


def test_now_lies_between_two_looks_at_the_clock() -> None:
    """The time is that of the clock, to the ms."""
    before = to_ms(datetime.now(UTC))
    now = now_ms()

    assert before - 1 <= now <= to_ms(datetime.now(UTC)) + 1


def test_a_moment_has_the_ms_that_mongodb_keeps_of_it() -> None:
    """What is told before it is stored and after is the same."""
    moment = datetime(2026, 11, 21, 14, 30, 0, 254_999, tzinfo=UTC)
    options = bson.CodecOptions(dict[str, datetime], tz_aware=True)
    kept = bson.decode(bson.encode({"at": moment}), options)["at"]

    assert to_ms(kept) == to_ms(moment)
