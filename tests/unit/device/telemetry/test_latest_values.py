"""Latest values: failed writes, and the history of which they are recomputed."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.store.mongo import DUPLICATE_KEY_CODE, BulkFailed
from services.device.telemetry import folded_values
from services.device.telemetry.folded_values import (
    FoldedReports,
    ReportTuple,
    RewrittenHistory,
    rewritten_entries,
)
from services.device.telemetry.latest_values import TOO_LARGE_ERROR_CODES, LatestValues

NOT_PRIMARY = 10107


class FailingCollection:
    """A collection in which the writes with these numbers fail with a code."""

    def __init__(self, codes: dict[int, int]) -> None:
        self.codes = codes
        self.ordered: list[bool] = []

    async def bulk_write(self, changes: Sequence[Any], *, ordered: bool) -> Any:
        self.ordered.append(ordered)
        errors = [{"index": number, "code": code} for number, code in self.codes.items()]
        modified = len(changes) - len(errors) - 1
        raise BulkFailed({"writeErrors": errors, "nModified": modified, "nUpserted": 1})


def latest_values() -> LatestValues:
    """Return latest values without a database."""
    database: Any = defaultdict(object)
    return LatestValues(database)


async def test_conflicts_are_repeated_and_values_that_are_too_large_omitted() -> None:
    """The other writes of the batch count as written."""
    documents: Any = FailingCollection({0: DUPLICATE_KEY_CODE, 2: min(TOO_LARGE_ERROR_CODES)})
    changes: Any = dict.fromkeys("abcd")
    assert await latest_values()._write(documents, changes) == (4, ["a"])
    assert documents.ordered == [False]


@pytest.mark.parametrize("codes", [{0: NOT_PRIMARY}, {0: DUPLICATE_KEY_CODE, 1: NOT_PRIMARY}])
async def test_other_faults_of_writes_are_raised(codes: dict[int, int]) -> None:
    """The batch is then delivered again."""
    documents: Any = FailingCollection(codes)
    changes: Any = dict.fromkeys("abcd")
    with pytest.raises(BulkFailed):
        await latest_values()._write(documents, changes)


async def test_a_conflict_of_recomputed_values_is_no_success() -> None:
    """One conflict does not prevent the other replacements; another fault is raised."""
    documents: Any = FailingCollection({1: DUPLICATE_KEY_CODE})
    changes: Any = ["a", "b"]
    assert not await latest_values()._replace_all(documents, changes)
    assert documents.ordered == [False]
    documents.codes[0] = NOT_PRIMARY
    with pytest.raises(BulkFailed):
        await latest_values()._replace_all(documents, changes)


@pytest.mark.parametrize(
    ("values", "complete"),
    [({"a": 1, "b": "x"}, True), ({"a": 1}, False), ({"a": 1, "b": {"c": 1}}, False)],
)
def test_older_reports_add_only_to_objects_and_missing_properties(
    values: dict[str, Any], complete: bool
) -> None:
    """Two values that are no objects are complete."""
    assert FoldedReports(0, 0, values).needs_no_older_reports(["a", "b"]) is complete


@pytest.mark.parametrize("name", ["", "a.b", "$a"])
def test_an_object_with_a_name_that_is_no_field_is_replaced_as_a_whole(name: str) -> None:
    """MongoDB would read the name as a path or an operator."""
    value = {"b": 1, name: 2}
    assert folded_values._merge_expression("$v.s.v", value) == {"$literal": value}


class StoredThing:
    """A collection with the document of one thing, which counts the updates."""

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.updates = 0

    async def find(self, *_: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"_id": 1, "t": self.newest, "n": 20}

    async def bulk_write(self, changes: Sequence[Any], *, ordered: bool) -> Any:
        self.updates += len(changes)
        return SimpleNamespace(modified_count=len(changes), upserted_count=0)


@pytest.mark.parametrize("ts", [9, 10, 11])
async def test_a_report_of_any_age_is_written_by_one_update(ts: int) -> None:
    """So is one that is as old as the newest report."""
    documents = StoredThing(newest=10)
    database: Any = defaultdict(lambda: documents)
    await LatestValues(database).apply([(1, ts, {"a": 1})])
    assert documents.updates == 1


class History:
    """The history of a thing, which counts how often all of it was read."""

    def __init__(self, *reports: ReportTuple) -> None:
        self.reports = reports
        self.limits: list[int | None] = []

    async def read(self, limit: int | None) -> AsyncIterator[Sequence[ReportTuple]]:
        self.limits.append(limit)
        yield self.reports


async def recomputed(history: History, names: set[str] | None, *times: int) -> dict[str, Any]:
    """Return the entries after the reports of `times` were rewritten."""
    stored = {"a": {"v": 1, "t": 5}, "b": {"v": 1, "t": 7}}
    return await rewritten_entries(stored, RewrittenHistory(history.read, set(times), names))


async def test_values_of_rewritten_reports_come_from_history() -> None:
    """A newer value of another report stays, an equally old one does not."""
    history = History((1, 5, {"a": 2, "b": 3}))
    assert await recomputed(history, {"a"}, 5) == {"a": {"v": 2, "t": 5}, "b": {"v": 1, "t": 7}}
    equal = History((1, 7, {"a": 2, "b": 3}))
    assert await recomputed(equal, {"a"}, 5) == {"a": {"v": 2, "t": 7}, "b": {"v": 3, "t": 7}}
    gone = History((1, 6, {"a": 2}))
    assert await recomputed(gone, {"a"}, 7) == {"a": {"v": 2, "t": 6}}


async def test_all_history_is_read_only_if_recent_reports_do_not_suffice() -> None:
    """They do not if any property may have changed, or lacks a value."""
    history = History((1, 8, {"a": 2, "b": 3}))
    await recomputed(history, {"a"})
    assert None not in history.limits
    await recomputed(history, {"c"})
    assert history.limits[-1] is None
    history.limits.clear()
    await recomputed(history, None)
    assert history.limits == [None]
