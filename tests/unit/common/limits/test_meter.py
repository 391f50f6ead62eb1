"""Messages are counted against limits on the clock of their arrival."""

from typing import Any

from libs.common.contracts.limits import Limits
from libs.common.limits.meter import MAX_BUCKETS, MessageMeter, Meter


class Known:
    """The same limits for everybody."""

    def __init__(self, **limits: int) -> None:
        self._limits = Limits(**limits)

    def get(self, _: str) -> Limits:
        return self._limits


def meter(**limits: int) -> MessageMeter:
    known: Any = Known(**limits)
    return MessageMeter(known)


def test_a_burst_passes_and_then_the_rate():
    """Ten seconds' worth at once; the refusal says when the next is there."""
    some = meter(each_messages=5)
    assert some.count("t", 1, 50, 50, 100.0) is None
    excess = some.count("t", 1, 1, 1, 100.0)
    assert excess is not None
    assert (excess.limit, excess.wait) == ("eachMessages", 0.2)
    assert excess.reason == "eachMessages: more than 5 messages per second of this device"
    assert some.count("t", 1, 5, 5, 101.0) is None


def test_a_backlog_counts_as_it_came():
    """An hour at the rate is dealt with in no time, and nothing of it is refused."""
    some = meter(each_messages=5)
    assert all(some.count("t", 1, 1, 10, at / 5) is None for at in range(18_000))


def test_rejected_requests_of_a_device_do_not_count_for_its_tenant():
    """Other devices continue until the tenant's limit."""
    some = meter(each_message_bytes=10, message_bytes=15)
    assert some.count("t", 1, 1, 100, 0) is None
    assert all((some.count("t", 1, 1, 100, 0) or ("",))[0] == "eachMessageBytes" for _ in range(9))
    assert some.count("t", 2, 1, 50, 0) is None
    assert (some.count("t", 3, 1, 1, 0) or ("",))[0] == "messageBytes"
    assert some.count("other", 4, 1, 100, 0) is None


def test_a_day_has_so_many_bytes():
    """They may come at once; the next ones when the clock has made room."""
    some = meter(event_bytes=86_400)
    assert some.count("t", 1, 1, 86_400, 0) is None
    excess = some.count("t", 2, 1, 10, 5)
    assert excess is not None
    assert (excess.limit, excess.wait) == ("eventBytes", 5.0)
    assert excess.reason == "eventBytes: more than 86400 bytes per day of this tenant"
    assert some.count("other", 3, 1, 10, 5) is None
    assert some.count("t", 2, 1, 10, 10) is None


def test_time_does_not_go_back_and_memory_has_a_bound():
    """The least recently used buckets are dropped."""
    some = Meter()
    for key in range(MAX_BUCKETS + 10):
        assert not some.seconds_until(key, 1, 1, 100)
    some.consume(MAX_BUCKETS, 10)
    assert some.seconds_until(MAX_BUCKETS, 1, 1, 50) == 1
    assert len(some._buckets) == MAX_BUCKETS
