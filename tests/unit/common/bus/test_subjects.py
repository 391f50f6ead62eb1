"""Filters of events by tenant."""

from libs.common.bus.subjects import MAX_FILTERED_TENANTS, UNUSED_EVENT_SUBJECT, event_filters

PATTERNS = ("event.*.*.*.reported", "event.*.alarm.*.*")


def test_a_consumer_receives_events_of_the_listed_tenants_only() -> None:
    """Without a tenant, a subject remains that no message has."""
    assert event_filters((), PATTERNS) == (UNUSED_EVENT_SUBJECT,)
    assert event_filters({"a"}, PATTERNS) == (
        "event.a.*.*.reported",
        "event.a.alarm.*.*",
        UNUSED_EVENT_SUBJECT,
    )


def test_a_consumer_for_many_tenants_receives_events_of_all() -> None:
    """The server compares each filter with all others."""
    tenants = [f"t{number}" for number in range(MAX_FILTERED_TENANTS + 1)]
    assert event_filters(tenants, PATTERNS) == PATTERNS
