"""A fleet is searched by group, tag, status, model, place and text, in any combination."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from services.device.things import device_search
from services.device.things.groups import GroupStore
from tests.integration.device.values.world import World

PARTS: dict[str, dict[str, Any]] = {
    "group": {"group_id": "GROUP"},
    "none": {"filter_not_grouped": True},
    "tag": {"tags": ["red", "green"]},
    "online": {"status": ["ONLINE"]},
    "never": {"status": ["NEVER_SEEN", "OFFLINE"]},
    "model": {"model": ["M1"]},
    "area": {"area": {"south": 10, "north": 30, "west": 170, "east": -170}},
    "text": {"name": "hall"},
    "ids": {"id_list": [str(number) for number in range(5_000_000, 5_000_040)]},
}
"""Filters, and what they are called here."""


def fits(row: dict[str, Any], part: str, group: int) -> bool:
    """Whether a device meets a filter."""
    place = row.get("location")
    return {
        "group": row.get("group") == group,
        "none": row.get("group") is None,
        "tag": bool({"red", "green"} & set(row["tag"])),
        "online": row["connectStatus"] == "ONLINE",
        "never": row["connectStatus"] != "ONLINE",
        "model": row["model"] == "M1",
        "area": place is not None
        and 10 <= place["latitude"] <= 30
        and abs(place["longitude"]) > 170,
        "text": "hall" in row["name"].lower(),
        "ids": row["_id"] < 5_000_040,
    }[part]


@pytest_asyncio.fixture(scope="module")
async def fleet(started: World) -> tuple[World, int, list[dict[str, Any]]]:
    """Sixty devices of a tenant of their own, of which all filters take some."""
    group = await GroupStore(started.database).add("fleet", "Hall")
    rows = []
    for at in range(60):
        name = f"{('Hall', 'roof')[at % 2]} {at}"
        row: dict[str, Any] = {
            "_id": 5_000_000 + at,
            "tenant": "fleet",
            "sn": f"FL{at}",
            "snKey": f"FL{at}",
            "identifier": f"FL{at}",
            "integration": "direct",
            "name": name,
            "model": f"M{at % 3}",
            "tslVersion": "1",
            "tag": [("red", "green", "blue")[at % 3], "all"],
            "connectStatus": ("ONLINE", "OFFLINE", "DISCONNECT", "DISCONNECT")[at % 4],
            "application": None,
            "createdAt": datetime.now(UTC),
            "updatedAt": datetime.now(UTC),
            "grams": device_search.extract_ngrams(name, f"FL{at}"),
        }
        if at % 5:
            row["group"] = group
        if at % 7:
            row["location"] = {"latitude": at, "longitude": (-175.0, 175.0, 0.0)[at % 3]}
        rows.append(row)
    await started.database["devices"].insert_many(rows)
    return started, group, rows


@pytest.mark.parametrize("size", [1, 2, 3, 6])
async def test_filters_combine(fleet: tuple[World, int, list[dict[str, Any]]], size: int):
    """A device that is found meets all of them, and one that meets all is found."""
    world, group, rows = fleet
    admin = world.admin("fleet")
    for parts in itertools.combinations(PARTS, size):
        asked: dict[str, Any] = {"page_size": 100, "page_number": 1}
        for part in parts:
            asked |= PARTS[part]
        if "group_id" in asked:
            asked["group_id"] = str(group)
        if {"online", "never"} <= set(parts):
            continue  # the same field
        page = await admin.done("POST", "/device/search", asked)
        wanted = [row["_id"] for row in rows if all(fits(row, part, group) for part in parts)]
        assert [int(row["id"]) for row in page["content"]] == wanted[::-1], parts
        assert page["total"] == len(wanted)


@pytest.mark.parametrize("column", ["name", "model", "status", "updated_at", "identifier", "key"])
async def test_filters_go_with_orders(fleet: tuple[World, int, list[dict[str, Any]]], column: str):
    """Up and down, page by page."""
    world, group, rows = fleet
    fields = {"status": "connectStatus", "updated_at": "updatedAt", "key": "identifier"}
    stored = fields.get(column, column)
    mine = [row for row in rows if row.get("group") == group]
    for direction, reverse in (("ASC", False), ("DESC", True)):
        found: list[str] = []
        for number in (1, 2, 3):
            asked = {"sorts": [{"property": column, "direction": direction}]}
            page = {"page_size": 20, "page_number": number, "group_id": str(group)}
            answer = await world.admin("fleet").done("POST", "/device/search", asked | page)
            found += [row["identifier"] for row in answer["content"]]
        expected = sorted(mine, key=lambda row: (row[stored], row["_id"]), reverse=reverse)
        assert found == [row["identifier"] for row in expected]


async def test_a_row_contains_the_searchable_fields(fleet: tuple[World, int, list[dict[str, Any]]]):
    """It has status and time, location, group, model and tags; missing ones are absent."""
    world, _, _ = fleet
    (row,) = (await world.admin("fleet").done("POST", "/device/search", {"name": "FL1"}))["content"]
    assert row["name"] == "roof 1"
    told = {key: row[key] for key in ("status", "location", "group_name", "model", "tags")}
    assert told == {
        "status": "OFFLINE",
        "location": {"latitude": 1.0, "longitude": 175.0},
        "group_name": "Hall",
        "model": "M1",
        "tags": ["green", "all"],
    }
    asked = {"identifier": "FL35"}
    (bare,) = (await world.admin("fleet").done("POST", "/device/search", asked))["content"]
    assert {"status", "location", "group_id", "group_name", "status_updated_at"}.isdisjoint(bare)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"status": ["AWAY"]}, "status[...]"),
        ({"area": {"south": 1, "north": 0, "west": 0, "east": 0}}, "area.south"),
        ({"area": {"south": -91, "north": 0, "west": 0, "east": 0}}, "area.south"),
        ({"area": {"south": 0}}, "area.north"),
        ({"group_id": "x"}, "group_id"),
        ({"id_list": ["1"] * 1001}, "id_list"),
        ({"sorts": [{"property": "location"}]}, "sorts[0].property"),
    ],
)
async def test_bad_filters_are_named(world: World, asked: dict[str, Any], field: str):
    """A 400 that names the field."""
    answer = await world.admin().refused(400, "POST", "/device/search", asked)
    assert answer["detail_message"].startswith(field.removesuffix("[...]"))
