"""Which reports of a history are new, and how far it has come."""

from services.management.builtin.openapi_client.remote import Record
from services.management.builtin.openapi_client.store import DeviceLink
from services.management.builtin.openapi_client.sync import (
    DAY_MS,
    FIRST_DAYS,
    MAX_DIGESTS,
    OVERLAP_MS,
    digest_record,
    find_start,
    find_unseen,
    remember,
)

NOW = 1_700_000_000_000


def link() -> DeviceLink:
    return DeviceLink(url="u", remote_id="7", state="here")


def test_a_first_sync_asks_for_thirty_days():
    """Later ones for what came after the newest report, and a little before it."""
    made = link()
    assert find_start(made, NOW) == NOW - FIRST_DAYS * DAY_MS
    remember(made, {"d": Record(NOW - 5000, {})})
    assert find_start(made, NOW) == NOW - 5000 - OVERLAP_MS


def test_equal_reports_have_one_digest():
    """Whatever the order of their keys; another value or time makes another."""
    first = digest_record(Record(NOW, {"a": 1, "b": 2}))
    assert digest_record(Record(NOW, {"b": 2, "a": 1})) == first
    assert digest_record(Record(NOW + 1, {"a": 1, "b": 2})) != first
    assert digest_record(Record(NOW, {"a": 1, "b": 3})) != first


def test_copied_reports_are_not_copied_again():
    """Two reports with one time are both copied, and so is a late report before the newest."""
    made = link()
    first, second = Record(NOW, {"a": 1}), Record(NOW, {"a": 2})
    taken = find_unseen(made, [first])
    remember(made, taken)
    assert list(find_unseen(made, [first, second]).values()) == [second]
    late = Record(NOW - 1000, {"a": 0})
    remember(made, find_unseen(made, [late]))
    assert made.at == NOW
    assert find_unseen(made, [first, late]) == {}


def test_only_the_last_minutes_are_remembered():
    """So that a link stays small however long its history."""
    made = link()
    for n in range(10):
        remember(made, find_unseen(made, [Record(NOW + n * OVERLAP_MS, {"n": n})]))
    assert len(made.seen) == 2
    many = [Record(NOW + 10 * OVERLAP_MS + n, {"n": n}) for n in range(MAX_DIGESTS + 500)]
    remember(made, find_unseen(made, many))
    assert len(made.seen) == MAX_DIGESTS
    assert find_unseen(made, many) == {}
