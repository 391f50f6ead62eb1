"""Latest values: newer replaces older, key by key, in whatever order reports come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import bson
import pytest

from services.device.migrations import split_large_values
from services.device.telemetry.folded_values import MAX_INLINE_BYTES, RewrittenHistory, bson_size
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.value_reader import PARTS_COLLECTION
from tests.integration.device.telemetry.world import World

Reported = tuple[int, int, dict[str, Any]]


async def test_any_order_of_reports_gives_the_same_latest_values(world: World):
    """Reports in every order, one by one and all at once, end in the same document."""
    reports = [
        (10, {"a": 1, "s": {"x": 1, "n": {"p": 1}}}),
        (20, {"b": 2, "s": {"y": 2, "n": {"q": 2}}}),
        (30, {"a": 3, "s": {"x": 3}}),
        (40, {"c": [1, 2]}),
    ]
    wanted = {"a": 3, "b": 2, "c": [1, 2], "s": {"x": 3, "y": 2, "n": {"p": 1, "q": 2}}}
    for number, order in enumerate(permutations(reports), 1):
        await world.latest.apply([(number, ts, values) for ts, values in order])
        found = await world.latest_of(number)
        assert {key: found[key] for key in "abc"} == {key: wanted[key] for key in "abc"}
    for ts, values in reports:
        await world.latest.apply([(1000, ts, values)])
    assert await world.latest_of(1000) == wanted


async def test_an_older_report_fills_in_and_never_overwrites(world: World):
    """A late report sets only the keys that nothing newer has set."""
    await world.latest.apply([(1, 100, {"a": "new"})])
    await world.latest.apply([(1, 50, {"a": "old", "b": "old"})])
    await world.latest.apply([(1, 40, {"b": "older"})])
    assert await world.latest_of(1) == {"a": "new", "b": "old"}
    document = await world.database["latest"].find_one({"_id": 1})
    assert (document["t"], document["v"]["a"]["t"], document["v"]["b"]["t"]) == (100, 100, 50)


async def test_the_arrival_of_the_last_report_is_known(world: World):
    """However old what it reports is; a rebuild keeps it."""
    await world.latest.apply([(1, 100, {"a": 1}), (2, 100, {"a": 1})], {1: 130})
    assert await world.latest.find_arrival_times([1, 2, 3]) == {1: 130, 2: 100}
    await world.latest.apply([(1, 50, {"a": 2, "b": 2})], {1: 170})
    await world.latest.apply([(1, 200, {"a": 3})], {1: 160})
    assert await world.latest.find_arrival_times([1]) == {1: 170}
    await world.latest.rebuild({1: RewrittenHistory(_nothing, {50}, None)})
    assert await world.latest.find_arrival_times([1]) == {1: 170}
    await world.database["latest"].update_one({"_id": 2}, {"$unset": {"a": ""}})
    assert await world.latest.find_arrival_times([2]) == {2: 100}


async def _nothing(_: int | None) -> AsyncIterator[Sequence[Reported]]:
    for nothing in ():
        yield nothing


@pytest.mark.parametrize("late", [False, True])
async def test_a_struct_that_is_reported_in_part_keeps_its_other_members(world: World, late: bool):
    """At every level, in the all-or-nothing update and in the value-by-value one."""
    await world.latest.apply([(1, 10, {"s": {"a": 1, "n": {"p": 1}}, "t": 0})])
    if late:
        await world.latest.apply([(1, 99, {"t": 1})])  # the next one is older than this
    await world.latest.apply([(1, 20, {"s": {"b": 2, "n": {"q": 2}}})])
    assert (await world.latest_of(1))["s"] == {"a": 1, "b": 2, "n": {"p": 1, "q": 2}}


@pytest.mark.parametrize("late", [False, True])
async def test_a_value_may_change_its_type(world: World, late: bool):
    """A scalar becomes an object and an object a scalar, on both ways."""
    await world.latest.apply([(1, 10, {"a": 1, "b": {"x": 1}, "c": None, "d": [1]})])
    if late:
        await world.latest.apply([(1, 99, {"t": 1})])
    await world.latest.apply([(1, 20, {"a": {"x": 1}, "b": 2, "c": {"y": 1}, "d": {"z": 1}})])
    found = await world.latest_of(1)
    assert [found[key] for key in "abcd"] == [{"x": 1}, 2, {"y": 1}, {"z": 1}]


@pytest.mark.parametrize("late", [False, True])
async def test_an_empty_object_takes_nothing_away(world: World, late: bool):
    """An empty STRUCT is one that was reported in part."""
    await world.latest.apply([(1, 10, {"s": {"a": {"b": 1}}})])
    if late:
        await world.latest.apply([(1, 99, {"t": 1})])
    await world.latest.apply([(1, 20, {"s": {"a": {}}, "n": {}})])
    found = await world.latest_of(1)
    assert (found["s"], found["n"]) == ({"a": {"b": 1}}, {})


async def test_values_that_look_like_expressions_are_values(world: World):
    """Text that begins with a dollar is never computed."""
    await world.latest.apply([(1, 99, {"z": 1})])
    await world.latest.apply([(1, 10, {"a": "$z", "s": {"b": "$$NOW", "c": ["$z"]}})])
    assert await world.latest_of(1) == {"z": 1, "a": "$z", "s": {"b": "$$NOW", "c": ["$z"]}}


async def test_failing_writes_do_not_affect_other_things(world: World):
    """Old, changed and new things of one bulk write are all stored."""
    await world.latest.apply([(1, 99, {"a": 1}), (2, 10, {"a": 1})])
    await world.latest.apply(
        [(1, 10, {"a": 0, "b": 1}), (2, 20, {"a": {"x": 1}}), (3, 5, {"a": 7})]
    )
    assert await world.latest_of(1) == {"a": 1, "b": 1}
    assert await world.latest_of(2) == {"a": {"x": 1}}
    assert await world.latest_of(3) == {"a": 7}


LONG, SHORT = "x" * 200_000, "y" * 4000


@pytest.mark.parametrize("late", [False, True])
async def test_a_report_writes_only_its_own_values(world: World, late: bool):
    """The document of a thing stays small, and its values are complete in every order."""
    reports = [
        (10, {f"k{number}": LONG for number in range(10)} | {"s": {"a": LONG}, "t": 1}),
        (20, {f"m{number}": SHORT for number in range(200)} | {"k0": "short", "t": 2}),
        (30, {"s": {"b": 2}, "k1": {"now": "an object"}, "m1": SHORT + "new"}),
        (40, {"k1": {"then": 1}, "t": 3}),
    ]
    for ts, values in reversed(reports) if late else reports:
        await world.latest.apply([(1, ts, values)])
    wanted = reports[0][1] | reports[1][1] | reports[2][1] | reports[3][1]
    wanted["s"] = {"a": LONG, "b": 2}
    wanted["k1"] = {"then": 1} if late else {"now": "an object", "then": 1}
    assert await world.latest_of(1) == wanted
    document = await world.database["latest"].find_one({"_id": 1})
    assert len(bson.encode(document)) < MAX_INLINE_BYTES
    assert (document["t"], await world.latest.find_report_times([1])) == (40, {1: 40})
    found = await world.latest.find_values_with_times([1], ["k0", "k2", "m1", "t", "none"])
    assert found == {
        1: {"k0": ("short", 20), "k2": (LONG, 10), "m1": (SHORT + "new", 30), "t": (3, 40)}
    }
    sizes = [part["n"] async for part in world.database[PARTS_COLLECTION].find()]
    assert sum(sizes) == pytest.approx(sum(map(bson_size, wanted.values())), rel=0.1)


async def test_a_value_that_two_processes_wrote_to_different_documents_is_the_newest(world: World):
    """One knew only the document of the thing when the other moved the value to a part."""
    await world.latest.apply([(1, 10, {"s": {"a": LONG, "b": 1}})])
    await world.database["latest"].update_one(
        {"_id": 1}, {"$set": {"v.s": {"v": {"b": 2}, "t": 20}}}
    )
    assert await world.latest_of(1) == {"s": {"a": LONG, "b": 2}}
    await world.latest.apply([(1, 30, {"s": {"c": 3}})])
    assert await world.latest_of(1) == {"s": {"a": LONG, "b": 2, "c": 3}}
    document = await world.database["latest"].find_one({"_id": 1})
    assert document["v"] == {}


async def test_values_of_a_thing_have_a_limit(world: World):
    """New properties are beyond it. Known ones may be reported again, even if they are larger."""
    values = {f"k{number}": LONG for number in range(21)} | {"s": {"a": 1, "b": LONG[:8000]}}
    await world.latest.apply([(1, 10, {key: values[key]}) for key in values])
    more = {"k0": LONG, "k1": LONG + "x", "s": {"a": 22}, "new": "z"}
    assert await world.latest.find_properties_beyond_limit([(1, 20, more)]) == {1: {"k1", "new"}}
    assert await world.latest.find_properties_beyond_limit([(1, 20, more | {"k2": ""})]) == {}
    assert await world.latest.find_properties_beyond_limit([(2, 20, more), (3, 20, values)]) == {
        3: {"k20"}
    }


async def test_values_of_before_are_divided(world: World):
    """By a migration; a thing that has more than it may have now keeps all."""
    large = {f"k{number}": LONG for number in range(30)} | {"a": 1, "s": {"x": 1}}
    many = {f"m{number}": SHORT for number in range(700)}
    for thing, values in enumerate((large, many, {"a": LONG[:5000], "b": 1}, {"a": "small"})):
        entries = {key: {"v": value, "t": 10} for key, value in values.items()}
        await world.database["latest"].insert_one({"_id": thing, "t": 10, "a": 12, "v": entries})
    for _ in range(2):
        await split_large_values(world.database)
        for thing, values in enumerate((large, many, {"a": LONG[:5000], "b": 1}, {"a": "small"})):
            assert await world.latest_of(thing) == values
    documents = await world.database["latest"].find({}, {"v": 1, "p": 1, "a": 1}).to_list(None)
    assert [set(document["v"]) for document in documents] == [{"a", "s"}, set(), {"b"}, {"a"}]
    assert [(document.get("p"), document["a"]) for document in documents] == [
        (1, 12),
        (2, 12),
        (1, 12),
        (None, 12),
    ]
    assert await world.latest.find_properties_beyond_limit([(0, 20, {"k1": LONG, "z": LONG})]) == {
        0: {"z"}
    }
    await world.latest.delete_thing_data(1)
    await world.latest.apply([(0, 20, {"k1": "less"})])
    assert (await world.latest_of(0), await world.latest_of(1)) == (large | {"k1": "less"}, {})
    assert await world.latest.erase_write_only(
        0, lambda values: {k: v for k, v in values.items() if k < "k2"}
    )
    assert set(await world.latest_of(0)) == {"a"} | {key for key in large if key < "k2"}


async def test_two_writers_at_once_leave_the_newest(world: World):
    """The first reports of a thing may come to two processes at the same moment."""
    other = LatestValues(world.database)
    for number in range(1, 30):
        await asyncio.gather(
            world.latest.apply([(number, 10, {"a": 1, "b": 1})]),
            other.apply([(number, 20, {"a": 2, "c": 2})]),
        )
        assert await world.latest_of(number) == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("known", [{"a": "wrong", "b": "wrong"}, {}])
async def test_values_are_rebuilt_while_reports_arrive(world: World, known: dict[str, Any]):
    """Reports that arrive meanwhile are kept."""
    await world.latest.apply([(1, 10, known)] if known else [])
    asked = list[int]()

    async def read(thing: int, newest: int | None) -> AsyncIterator[Sequence[Reported]]:
        asked.append(thing)
        if asked.count(1) == 1:
            await world.latest.apply([(1, 20, {"c": "new"})])
        yield [(thing, 10, {"a": "right"})]

    await world.latest.rebuild(
        {thing: RewrittenHistory(partial(read, thing), {10}, {"a"}) for thing in (1, 2)}
    )
    assert await world.latest_of(1) == {"a": "right", "c": "new"}
    assert await world.latest_of(2) == {"a": "right"}
    assert asked.count(1) > 1


async def test_large_values_are_made_anew(world: World):
    """In their parts, where no report has them any more they go."""
    many = {f"m{number}": SHORT for number in range(150)}
    await world.latest.apply([(1, 10, many | {"a": LONG, "b": LONG, "c": 1}), (2, 10, {"a": 1})])

    async def read(thing: int, _: int | None) -> AsyncIterator[Sequence[Reported]]:
        yield [(thing, 10, many | {"a": LONG + "new", "c": 2})]

    things = {thing: RewrittenHistory(partial(read, thing), {10}, {"a"}) for thing in (1, 2, 3)}
    await world.latest.rebuild(things)
    for thing in things:
        assert await world.latest_of(thing) == many | {"a": LONG + "new", "c": 2}
    assert await world.database["latest"].count_documents({"p": 2}) == 3


async def test_a_cached_state_never_hides_values_of_another_process(world: World):
    """Only the first report reads the state; newer values of others stay."""
    other = LatestValues(world.database)
    reads: list[Any] = []

    class Counted(LatestValues):
        async def _read_states(self, thing_ids: Any) -> Any:
            reads.append(thing_ids)
            return await super()._read_states(thing_ids)

    latest = Counted(world.database)
    await latest.apply([(1, 10, {"a": 1, "b": 1})])
    await latest.apply([(1, 11, {"a": 2})])
    assert len(reads) == 1
    await other.apply([(1, 30, {"a": 3, "large": "x" * 5000})])
    await latest.apply([(1, 20, {"a": 4, "b": 4, "large": "small"})])
    assert await world.latest_of(1) == {"a": 3, "b": 4, "large": "x" * 5000}
    await latest.apply([(1, 40, {"a": 5, "large": "small"})])
    assert await world.latest_of(1) == {"a": 5, "b": 4, "large": "small"}


async def test_a_cached_state_counts_the_bytes_of_its_document(world: World):
    """Values that grow beyond the document move to parts at once."""
    for number in range(2 * MAX_INLINE_BYTES // 4000):
        await world.latest.apply([(1, number + 1, {f"v{number}": "x" * 4000})])
    document = await world.database["latest"].find_one({"_id": 1})
    assert len(bson.encode(document)) <= MAX_INLINE_BYTES + 5000
    assert len(await world.latest_of(1)) == 2 * MAX_INLINE_BYTES // 4000
