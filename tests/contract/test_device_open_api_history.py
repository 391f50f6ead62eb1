"""Property history: order, pages, bounds and the cursor."""

import time

import pytest

from tests.contract.client import Api, refused
from tests.contract.conftest import Thing

pytestmark = pytest.mark.xdist_group("contract")

HOUR = 3_600_000


async def _fill(api: Api, thing: Thing, count: int, since: int) -> None:
    """Report `counter` 0, 1, … at one ms after the other, in one request."""
    reports = [{"ts": since + at, "properties": {"counter": at}} for at in range(count)]
    assert (await api.report(thing.sn, thing.key, reports))["accepted"] == count


def _counters(page: dict) -> list[int]:
    return [entry["properties"]["counter"] for entry in page["list"]]


async def test_the_newest_comes_first_with_types_as_specified(api: Api, thing: Thing) -> None:
    """No `nextPageKey` on the only page; the Java client takes the first value of each key."""
    since = int(time.time() * 1000) - HOUR
    await _fill(api, thing, 3, since)
    page = await api.done("GET", f"/devices/{thing.id}/properties/history")
    assert page == {
        "list": [{"ts": since + at, "properties": {"counter": at}} for at in (2, 1, 0)],
        "pageSize": 100,
    }
    page = await api.done("GET", f"/devices/{thing.id}/properties/history", order="ASC")
    assert _counters(page) == [0, 1, 2]


async def test_clients_loop_until_next_page_key_is_gone(api: Api, thing: Thing) -> None:
    """An exact multiple of the page size ends without an empty page."""
    await _fill(api, thing, 6, int(time.time() * 1000) - HOUR)
    for order in ("desc", "asc"):
        query = {"pageSize": "2", "order": order}
        seen: list[int] = []
        pages = 0
        while True:
            page = await api.done("GET", f"/devices/{thing.id}/properties/history", **query)
            pages += 1
            seen += _counters(page)
            assert page["pageSize"] == 2
            if page.get("nextPageKey") is None:
                assert "nextPageKey" not in page
                break
            assert isinstance(page["nextPageKey"], str)
            query["pageKey"] = page["nextPageKey"]
        assert (pages, seen) == (3, sorted(range(6), reverse=order == "desc"))


async def test_the_cursor_stands_still_while_reports_arrive(api: Api, thing: Thing) -> None:
    """Nothing comes twice and nothing is left out of what was there."""
    since = int(time.time() * 1000) - HOUR
    await _fill(api, thing, 5, since)
    path = f"/devices/{thing.id}/properties/history"
    first = await api.done("GET", path, pageSize=2)
    await api.report(
        thing.sn,
        thing.key,
        [{"ts": since + 50 + at, "properties": {"battery": 1}} for at in (0, 1)],
    )
    second = await api.done("GET", path, pageSize=2, pageKey=first["nextPageKey"])
    third = await api.done("GET", path, pageSize=2, pageKey=second["nextPageKey"])
    assert _counters(first) + _counters(second) + _counters(third) == [4, 3, 2, 1, 0]
    assert "nextPageKey" not in third


async def test_page_sizes_are_clamped(api: Api, thing: Thing) -> None:
    """At most 1000 and no refusal; text is a number."""
    await _fill(api, thing, 1000, int(time.time() * 1000) - HOUR)
    path = f"/devices/{thing.id}/properties/history"
    page = await api.done("GET", path, pageSize="5000")
    assert (page["pageSize"], len(page["list"])) == (1000, 1000)
    page = await api.done("GET", path)
    assert (page["pageSize"], len(page["list"])) == (100, 100)


async def test_without_bounds_it_is_the_last_day(api: Api, thing: Thing) -> None:
    """A start of 30 days ago is answered with what there is; bounds are inclusive."""
    now = int(time.time() * 1000)
    times = [now - 26 * HOUR, now - 2 * HOUR, now - HOUR]
    reports = [{"ts": ts, "properties": {"counter": at}} for at, ts in enumerate(times)]
    await api.report(thing.sn, thing.key, reports)
    path = f"/devices/{thing.id}/properties/history"
    assert _counters(await api.done("GET", path)) == [2, 1]
    assert _counters(await api.done("GET", path, startTime=now - 720 * HOUR)) == [2, 1, 0]
    exact = await api.done("GET", path, startTime=times[1], endTime=times[1])
    assert _counters(exact) == [1]
    assert _counters(await api.done("GET", path, startTime=now + 1, endTime=now + HOUR)) == []


async def test_values_keep_their_types(api: Api, thing: Thing) -> None:
    """Objects and arrays nested, an ENUM as text, a whole LONG, a scaled FLOAT."""
    values = {
        "temperature": 21.5,
        "counter": 2**53 - 1,
        "led": False,
        "lorawan_class": "2",
        "label": "Grün",
        "reporting_interval": {"time": 30, "unit": "1"},
        "rules": [{"limit": 0.5}],
    }
    taken = await api.report(thing.sn, thing.key, {"properties": values})
    assert taken == {"accepted": 1, "refused": []}
    page = await api.done("GET", f"/devices/{thing.id}/properties/history")
    assert page["list"][0]["properties"] == values


async def test_keys_of_others_are_refused(api: Api, thing: Thing) -> None:
    """A key of another device, a broken one, and one of the other spelling's name."""
    await _fill(api, thing, 2, int(time.time() * 1000) - HOUR)
    path = f"/devices/{thing.id}/properties/history"
    key = (await api.done("GET", path, pageSize=1))["nextPageKey"]
    other = await api.add()
    for device, given in (
        (other, key),
        (thing.id, key[:-4]),
        (thing.id, "garbage!"),
        (thing.id, "é"),
    ):
        answer = await api.ask(
            "GET", f"/devices/{device}/properties/history", params={"pageKey": given}
        )
        refused(answer, 400, "pageKey", code="parameter_validation_failed")
