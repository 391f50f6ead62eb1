"""Times in ms and moments."""

from datetime import UTC, datetime, timedelta, timezone

import bson
import pytest

from libs.common.clock import from_ms, now_ms, parse_time, to_ms


@pytest.mark.parametrize("ms", [0, 1, 999, 1_795_270_889_557, 253_402_300_799_999])
def test_a_time_in_ms_survives_the_conversion_to_a_datetime(ms: int) -> None:
    """A stored datetime is read as the same ms."""
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


def test_a_datetime_has_the_precision_of_mongodb() -> None:
    """Its value is the same before and after it is stored."""
    moment = datetime(2026, 11, 21, 14, 30, 0, 254_999, tzinfo=UTC)
    options = bson.CodecOptions(dict[str, datetime], tz_aware=True)
    kept = bson.decode(bson.encode({"at": moment}), options)["at"]

    assert to_ms(kept) == to_ms(moment)


@pytest.mark.parametrize(
    "given",
    [
        1645630395,
        1645630395.0,
        1645630395000,
        "1645630395",
        "1645630395.0",
        " 1645630395000 ",
        "1.645630395e9",
        "2022-02-23T15:33:15Z",
        "2022-02-23T15:33:15",
        "2022-02-23 15:33:15",
        "2022-02-23T16:33:15+01:00",
        "2022-02-23T16:33:15.000+0100",
        "2022-02-23T15:33:15.000000123Z",
        datetime(2022, 2, 23, 15, 33, 15),  # noqa: DTZ001 - a server without zones
    ],
)
def test_a_time_is_parsed_however_a_server_writes_it(given: object) -> None:
    """Seconds, ms or ISO 8601; text without a zone is UTC."""
    moment = parse_time(given)
    assert moment is not None
    assert to_ms(moment) == 1645630395000


@pytest.mark.parametrize("given", [None, "", "soon", "1e999", 1e300, True, [], {}, float("nan")])
def test_an_invalid_time_is_none(given: object) -> None:
    """This includes numbers that no date has."""
    assert parse_time(given) is None
