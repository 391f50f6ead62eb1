"""Which reports of a history are new, and how far it has come."""

from services.management.builtin.openapi_client.remote import HistoryReport
from services.management.builtin.openapi_client.store import DeviceLink
from services.management.builtin.openapi_client.sync import (
    DAY_MS,
    HISTORY_OVERLAP_MS,
    MAX_DIGESTS_PER_DEVICE,
    MAX_HISTORY_DAYS,
    choose_history_start_ms,
    digest_report,
    find_new_reports,
    record_imported,
)

NOW = 1_700_000_000_000


def link() -> DeviceLink:
    return DeviceLink(url="u", remote_id="7", state="here")


def test_a_first_sync_asks_for_thirty_days():
    """Later ones for what came after the newest report, and a little before it."""
    made = link()
    assert choose_history_start_ms(made, NOW) == NOW - MAX_HISTORY_DAYS * DAY_MS
    record_imported(made, {"d": HistoryReport(NOW - 5000, {})})
    assert choose_history_start_ms(made, NOW) == NOW - 5000 - HISTORY_OVERLAP_MS


def test_equal_reports_have_one_digest():
    """Whatever the order of their keys; another value or time makes another."""
    first = digest_report(HistoryReport(NOW, {"a": 1, "b": 2}))
    assert digest_report(HistoryReport(NOW, {"b": 2, "a": 1})) == first
    assert digest_report(HistoryReport(NOW + 1, {"a": 1, "b": 2})) != first
    assert digest_report(HistoryReport(NOW, {"a": 1, "b": 3})) != first


def test_copied_reports_are_not_copied_again():
    """Two reports with one time are both copied, and so is a late report before the newest."""
    made = link()
    first, second = HistoryReport(NOW, {"a": 1}), HistoryReport(NOW, {"a": 2})
    taken = find_new_reports(made, [first])
    record_imported(made, taken)
    assert list(find_new_reports(made, [first, second]).values()) == [second]
    late = HistoryReport(NOW - 1000, {"a": 0})
    record_imported(made, find_new_reports(made, [late]))
    assert made.at == NOW
    assert find_new_reports(made, [first, late]) == {}


def test_only_the_last_minutes_are_remembered():
    """So that a link stays small however long its history."""
    made = link()
    for n in range(10):
        record_imported(
            made, find_new_reports(made, [HistoryReport(NOW + n * HISTORY_OVERLAP_MS, {"n": n})])
        )
    assert len(made.seen) == 2
    many = [
        HistoryReport(NOW + 10 * HISTORY_OVERLAP_MS + n, {"n": n})
        for n in range(MAX_DIGESTS_PER_DEVICE + 500)
    ]
    record_imported(made, find_new_reports(made, many))
    assert len(made.seen) == MAX_DIGESTS_PER_DEVICE
    assert find_new_reports(made, many) == {}
