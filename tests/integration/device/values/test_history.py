"""History of entities: pages, aggregates and export."""

import csv
import io
import time
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.contracts.access import ResourceType
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.functions import Function
from libs.common.store.ids import IdAllocator
from libs.common.things import entity_id
from services.device.commands.service import CommandService
from services.device.entities.console import ENTITY_READ_FUNCTIONS
from services.device.telemetry.partitions import DAY_MS, PARTITION_MS, Partitions, history_key
from tests.integration.device.values.world import LAMP, World, param, property_of
from tests.sender import NoIntegrationSender

NOW = int(time.time() * 1000)
T = (
    NOW // PARTITION_MS * PARTITION_MS
)  # a partition begins here: what is before it is in another one
START, END = T - 10_000, T + 10_000


async def lamp(world: World, sn: str) -> tuple[int, dict[str, str]]:
    """Add a direct device with the lamp's TSL, and return its entity ids by member."""
    await world.put_product("LAMP", LAMP)
    thing = await world.add_direct(sn, "LAMP")
    keys = await world.ids(thing)
    return thing, {key.removeprefix(f"direct.device.{sn}."): one for key, one in keys.items()}


async def search(user, *ids: str, **more):
    """Return a page of history over the time of these tests."""
    body = {"start_timestamp": START, "end_timestamp": END, **more}
    return await user.done("POST", "/entity/history/search", {"entity_ids": list(ids)} | body)


async def aggregate(user, one: str, kind: str, **more):
    """Return an aggregate over the time of these tests."""
    body = {"entity_id": one, "aggregate_type": kind}
    times = {"start_timestamp": START, "end_timestamp": END}
    return await user.done("POST", "/entity/history/aggregate", body | times | more)


async def test_history_is_read_newest_first_across_partitions(world: World):
    """Timestamps are numbers, bounds are inclusive, and a list has no page."""
    thing, ids = await lamp(world, "H-1")
    await world.history(
        thing,
        (START - 1, {"level": 9}),
        (START, {"level": 1}),
        (T - 1, {"level": 2, "power": 0.5}),
        (T, {"power": 1.5}),
        (END, {"level": 3, "wifi": {"ssid": "net"}}),
        (END + 1, {"level": 9}),
    )
    level = ids["level"]
    found = await search(world.admin(), level)
    assert found == [
        {
            "id": f"{level}-{ts}-0",
            "entity_id": level,
            "timestamp": ts,
            "value": value,
            "value_type": "LONG",
        }
        for ts, value in ((END, 3), (T - 1, 2), (START, 1))
    ]
    pages = [await search(world.admin(), level, page_size=2, page_number=at) for at in (1, 2, 3)]
    assert [page["total"] for page in pages] == [3, 3, 3]
    assert [[row["value"] for row in page["content"]] for page in pages] == [[3, 2], [1], []]
    oldest = [{"property": "timestamp", "direction": "ASC"}]
    found = await search(world.admin(), level, sorts=oldest)
    assert [row["value"] for row in found] == [1, 2, 3]
    moment = {"start_timestamp": T - 1, "end_timestamp": T - 1}
    assert [row["value"] for row in await search(world.admin(), level, **moment)] == [2]
    assert (await aggregate(world.admin(), level, "LAST", **moment))["value"] == 2
    (ssid,) = await search(world.admin(), ids["wifi.ssid"])
    assert ssid["value"] == "net"
    assert await search(world.admin(), ids["wifi"]) == []


async def test_history_of_some_entities_is_merged_by_time(world: World):
    """Pages are cut from the merged history."""
    one, first = await lamp(world, "H-2")
    two, second = await lamp(world, "H-3")
    await world.history(one, *((START + 10 * at, {"level": at}) for at in range(8)))
    await world.history(two, *((START + 10 * at + 5, {"level": 10 + at}) for at in range(8)))
    found = await search(world.admin(), first["level"], second["level"])
    assert [row["value"] for row in found[:5]] == [17, 7, 16, 6, 15]
    page = await search(world.admin(), first["level"], second["level"], page_size=3, page_number=5)
    assert page["total"] == 16
    values = [row["value"] for row in page["content"]]
    assert values == [row["value"] for row in found[12:15]]


async def test_values_have_the_type_of_their_entity(world: World):
    """Numeric ENUMs are numbers, ARRAYs stay arrays, and large integers keep their digits."""
    thing, ids = await lamp(world, "H-4")
    await world.history(
        thing,
        (T, {"colour": "1", "steps": [1, 2], "on": True, "level": 2**40, "blob": "AAEC"}),
    )
    expected = {"colour": 1, "steps": [1, 2], "on": True, "level": 2**40, "blob": "AAEC"}
    for name, value in expected.items():
        (row,) = await search(world.admin(), ids[name])
        assert row["value"] == value
    types = {name: (await search(world.admin(), ids[name]))[0]["value_type"] for name in expected}
    assert types == {
        "colour": "LONG",
        "steps": "OBJECT",
        "on": "BOOLEAN",
        "level": "LONG",
        "blob": "BINARY",
    }


async def test_aggregates(world: World):
    """Aggregates cover partitions, with decimal sums and rounded means."""
    thing, ids = await lamp(world, "H-5")
    rows = [
        (START, {"level": 1, "power": 0.1, "on": True, "label": "b", "colour": "1"}),
        (T - 5, {"level": 2, "power": 0.2, "on": False, "label": "a", "colour": "0"}),
        (T + 5, {"level": 2, "power": 0.3, "label": "B", "colour": "1", "blob": "+g=="}),
        (END, {"level": 5, "power": 1 / 3, "blob": "AA=="}),
        (END + 1, {"level": 100, "power": 100.0}),
    ]
    await world.history(thing, *rows)
    admin = world.admin()
    cases = {
        ("level", "LAST"): 5,
        ("level", "MIN"): 1,
        ("level", "MAX"): 5,
        ("level", "AVG"): 2.5,
        ("level", "SUM"): 10,
        ("power", "LAST"): 1 / 3,
        ("power", "MIN"): 0.1,
        ("power", "MAX"): 1 / 3,
        ("power", "AVG"): 0.23333333,
        ("power", "SUM"): 0.933333333333333,
        ("on", "MIN"): False,
        ("on", "MAX"): True,
        ("on", "LAST"): False,
        ("label", "MIN"): "B",
        ("label", "MAX"): "b",
        ("colour", "MAX"): 1,
        ("colour", "AVG"): 2 / 3,
        ("blob", "MIN"): "AA==",
        ("blob", "MAX"): "+g==",
    }
    for (name, kind), expected in cases.items():
        found = await aggregate(admin, ids[name], kind)
        assert found["value"] == pytest.approx(expected, abs=1e-15), (name, kind)
        assert "count_result" not in found
    counted = await aggregate(admin, ids["level"], "COUNT")
    assert counted == {
        "count_result": [
            {"value": 2, "value_type": "LONG", "count": 2},
            {"value": 1, "value_type": "LONG", "count": 1},
            {"value": 5, "value_type": "LONG", "count": 1},
        ]
    }
    counted = await aggregate(admin, ids["colour"], "COUNT")
    assert [(row["value"], row["count"]) for row in counted["count_result"]] == [(1, 2), (0, 1)]


@pytest.mark.parametrize("kind", ["LAST", "MIN", "MAX", "AVG", "SUM", "COUNT"])
async def test_an_aggregate_of_nothing_is_empty(world: World, kind: str):
    """Without values, `data` is empty."""
    _, ids = await lamp(world, f"H-{kind}")
    assert await aggregate(world.admin(), ids["level"], kind) == {}


@pytest.mark.parametrize("name", ["on", "label", "blob", "steps", "wifi"])
@pytest.mark.parametrize("kind", ["AVG", "SUM"])
async def test_only_numbers_have_a_mean_or_a_sum(world: World, name: str, kind: str):
    """The error names the type of the aggregate."""
    _, ids = await lamp(world, f"H-{kind}-{name}")
    body = {"entity_id": ids[name], "aggregate_type": kind}
    await world.admin().refused(
        400, "POST", "/entity/history/aggregate", body, field="aggregate_type"
    )


SEARCH, AGGREGATE = "/entity/history/search", "/entity/history/aggregate"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (SEARCH, {}, "entity_id"),
        (SEARCH, {"entity_ids": []}, "entity_id"),
        (SEARCH, {"entity_id": "x"}, "entity_id"),
        (SEARCH, {"entity_id": 0}, "entity_id"),
        (SEARCH, {"entity_id": 1, "start_timestamp": 6, "end_timestamp": 5}, "end_timestamp"),
        (SEARCH, {"entity_id": 1, "start_timestamp": NOW + DAY_MS}, "end_timestamp"),
        (SEARCH, {"entity_id": 1, "start_timestamp": -1}, "start_timestamp"),
        (SEARCH, {"entity_id": 1, "start_timestamp": "x"}, "start_timestamp"),
        (SEARCH, {"entity_id": 1, "end_timestamp": 10**15}, "end_timestamp"),
        (SEARCH, {"entity_id": 1, "sorts": [{"property": "value"}]}, "sorts[0].property"),
        (SEARCH, {"entity_id": 1, "page_size": 0}, "page_size"),
        (SEARCH, {"entity_ids": list(range(1, 102))}, "entity_ids"),
        (AGGREGATE, {"aggregate_type": "LAST"}, "entity_id"),
        (AGGREGATE, {"entity_id": 1}, "aggregate_type"),
        (AGGREGATE, {"entity_id": 1, "aggregate_type": "MEDIAN"}, "aggregate_type"),
        (AGGREGATE, {"entity_id": 1, "aggregate_type": None}, "aggregate_type"),
        (
            AGGREGATE,
            {"entity_id": 1, "aggregate_type": "MIN", "start_timestamp": 9, "end_timestamp": 8},
            "end_timestamp",
        ),
    ],
)
async def test_an_invalid_field_is_named(world: World, path: str, body, field: str):
    """The error names the invalid field."""
    await world.admin().refused(400, "POST", path, body, field=field)


async def test_hidden_entities_have_no_history(world: World):
    """Hidden entities have no history."""
    thing, ids = await lamp(world, "H-6")
    await world.history(thing, (T, {"level": 1}))
    query = f"/entity/export?ids={ids['level']}"
    await world.user(8).refused(403, "GET", query, code="forbidden_permission")
    await world.admin("other").refused(404, "GET", query, code="data_no_found")
    for stranger in (world.user(7), world.user(8), world.admin("other")):
        await _has_no_data(stranger, ids["level"])
    await _has_no_data(world.admin(), str(entity_id(thing, 8000)))
    world.grants.give(7, ResourceType.ENTITY, ids["level"])
    assert len(await world.user(7).done("POST", SEARCH, {"entity_id": ids["level"]})) == 1
    assert (await aggregate(world.user(7), ids["level"], "LAST"))["value"] == 1
    assert (await world.user(7).ask("GET", query)).status_code == 200
    both = {"entity_ids": [ids["power"], ids["level"]]}
    rows = await world.user(7).done("POST", SEARCH, both)
    assert {row["entity_id"] for row in rows} == {ids["level"]}  # of several, what is seen


async def _has_no_data(user, entity: str) -> None:
    """Check for an empty response, because charts of existing consoles fail on a 404."""
    for given in ({"entity_id": entity}, {"entity_ids": [entity]}):
        assert await user.done("POST", SEARCH, given) == []
        page = await user.done("POST", SEARCH, {**given, "page_size": 9, "page_number": 1})
        assert (page["total"], page["content"]) == (0, [])
    for kind in ("LAST", "AVG", "COUNT"):
        asked = {"entity_id": entity, "aggregate_type": kind}
        assert await user.done("POST", AGGREGATE, asked) == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "needed"),
    [
        (
            "POST",
            SEARCH,
            {"entity_id": 1},
            {*ENTITY_READ_FUNCTIONS, "dashboard.add", "entity_data.view"},
        ),
        (
            "POST",
            AGGREGATE,
            {"entity_id": 1, "aggregate_type": "MIN"},
            set(ENTITY_READ_FUNCTIONS),
        ),
        (
            "GET",
            "/entity/export?ids=1",
            None,
            {"entity_data.export", "entity_data.view", "device.view"},
        ),
    ],
)
async def test_reading_needs_one_of_its_functions(world: World, method, path, body, needed):
    """One function suffices; all others together do not."""
    world.grants.give(7, ResourceType.DEVICE, 1)
    others = [function for function in Function if function not in needed]
    await world.user(7, *others).refused(403, method, path, body)
    for function in needed:
        found = await world.user(7, Function(function)).ask(method, path, body)
        assert found.status_code == (404 if method == "GET" else 200)


@pytest.mark.parametrize("spelling", ["timezone", "time_zone", "timeZone"])
async def test_an_export_has_the_times_of_a_zone(world: World, spelling: str):
    """Times are in the zone of each parameter; an invalid name is a 400."""
    thing, ids = await lamp(world, f"H-{uuid4().hex[:8]}")
    await world.history(thing, (T, {"level": 1}))
    path = f"/entity/export?&ids={ids['level']}&{spelling}="
    answer = await world.admin().ask("GET", f"{path}Asia%2FTokyo")
    local = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(T // 1000 + 9 * 3600))
    assert f",{local}," in answer.text
    for wrong in ("Moon", "..%2Fetc", "%2Fetc%2Fpasswd"):
        await world.admin().refused(400, "GET", f"{path}{wrong}", field="timezone")


async def test_an_export_has_no_formulas(world: World):
    """Enumerations have labels, and formulas are text."""
    thing, ids = await lamp(world, "H-7")
    await world.admin().done("PUT", f"/device/{thing}", {"name": '=cmd|"x", "y"'})
    await world.history(
        thing,
        (START, {"colour": "0", "label": "=1+1", "level": -5}),
        (T, {"colour": "1", "label": "\uff20x"}),
    )
    query = f"&ids={ids['colour']}&ids={ids['label']}&ids={ids['level']}"
    answer = await world.admin().ask(
        "GET", f"/entity/export?{query}&start_timestamp={START}&end_timestamp={END}"
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/csv")
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("attachment; filename=EntityData_")
    assert disposition.endswith(".csv")
    lines = list(csv.reader(io.StringIO(answer.text)))
    times = {ts: time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(ts // 1000)) for ts in (START, T)}
    about = ["Direct connection", '\'=cmd|"x", "y"']
    assert lines == [
        ["Entity Name", "Entity Identifier", "Value", "Update Time", "Integration", "Device"],
        ["colour", "direct.device.H-7.colour", "green", times[T], *about],
        ["colour", "direct.device.H-7.colour", "red", times[START], *about],
        ["label", "direct.device.H-7.label", "'\uff20x", times[T], *about],
        ["label", "direct.device.H-7.label", "'=1+1", times[START], *about],
        ["level", "direct.device.H-7.level", "-5", times[START], *about],
    ]


BELL = {
    "version": "v1.0",
    "properties": [],
    "events": [
        {"id": "rung", "name": "rung", "outputs": []},
        {"id": "pressed", "name": "pressed", "outputs": [param("pressed.times", "INT")]},
    ],
    "services": [
        {"id": "mute", "name": "mute", "inputs": [], "outputs": []},
        {"id": "ring", "name": "ring", "inputs": [param("ring.times", "INT")], "outputs": []},
    ],
}


async def bell(world: World, sn: str, *reported: tuple[str, dict[str, Any]]) -> int:
    """Add a device with one event per millisecond up to now."""
    await world.put_product("BELL", BELL)
    thing = await world.add_direct(sn, "BELL")
    first = now_ms() - len(reported)
    for number, (event, outputs) in enumerate(reported):
        body = {"eventId": event, "outputs": outputs, "ts": first + number}
        await world.outside.js.publish(uplink_subject(sn, "event"), msgspec.json.encode(body))

    async def stored() -> bool:
        events = world.database["device_events"]
        mine = {"$gte": history_key(thing, 0, 0), "$lt": history_key(thing + 1, 0, 0)}
        return bool(await events.count_documents({"_id": mine}) == len(reported))

    await world.until(stored)
    return thing


async def test_the_value_of_an_event_is_its_last_outputs(world: World):
    """Its outputs have values, too; services and events without an occurrence have none."""
    last = now_ms()
    thing = await bell(world, "H-11", *[("pressed", {"times": n}) for n in range(3)], ("rung", {}))
    ids = await world.ids(thing)
    admin, key = world.admin(), "direct.device.H-11"
    pressed = ids[f"{key}.pressed"]
    status = await admin.done("GET", f"/entity/{pressed}/status")
    assert status["value"] == {"times": 2}
    assert abs(int(status["timestamp"]) - last) < 60_000
    asked = [pressed, ids[f"{key}.pressed.times"], ids[f"{key}.rung"], ids[f"{key}.ring"]]
    found = await admin.done("POST", "/entity/batch-get-status", {"entity_ids": asked})
    assert [found[str(one)].get("value") for one in asked] == [{"times": 2}, 2, {}, None]
    wanted = {"ENTITY_KEY": {"operator": "START_WITH", "values": [f"{key}."]}}
    body = {"entity_filter": wanted, "page_size": 50, "page_number": 1}
    rows = (await admin.done("POST", "/entity/advanced-search", body))["content"]
    texts = {row["entity_key"]: row.get("entity_latest_value") for row in rows}
    assert (texts[f"{key}.pressed"], texts[f"{key}.pressed.times"]) == ('{"times":2}', "2")
    await world.database["device_events"].delete_many({"e": "rung"})
    assert await admin.done("GET", f"/entity/{asked[2]}/status") == {}


async def test_events_of_a_device_are_paged_from_the_newest(world: World):
    """Events are filtered by time and event, and hidden without a grant."""
    events = [("pressed", {"times": n}) for n in range(5)]
    thing = await bell(world, "H-12", *events, ("rung", {}))
    path, admin = f"/device/{thing}/events/search", world.admin()

    page = await admin.done("POST", path, {"page_size": 3})
    assert [(entry["event_id"], entry["outputs"]) for entry in page["content"]] == [
        ("rung", {}),
        ("pressed", {"times": 4}),
        ("pressed", {"times": 3}),
    ]
    rest = await admin.done("POST", path, {"page_size": 3, "next_key": page["next_key"]})
    assert [entry["outputs"]["times"] for entry in rest["content"]] == [2, 1, 0]
    assert "next_key" not in rest
    assert len({entry["id"] for entry in page["content"] + rest["content"]}) == 6

    body = {"event_id": "pressed", "end_timestamp": rest["content"][0]["ts"]}
    found = await admin.done("POST", path, body)
    assert [entry["outputs"]["times"] for entry in found["content"]] == [2, 1, 0]
    body["start_timestamp"] = body["end_timestamp"]
    (only,) = (await admin.done("POST", path, body))["content"]
    assert only["outputs"] == {"times": 2}

    await admin.refused(400, "POST", path, {"page_size": 201}, field="page_size")
    await admin.refused(400, "POST", path, {"next_key": "x"}, field="next_key")
    await admin.refused(400, "POST", path, {**body, "end_timestamp": 1}, field="end_timestamp")
    await world.user(7, Function.ENTITY_DATA_VIEW).refused(403, "POST", path, {})
    world.grants.give(7, ResourceType.DEVICE, thing + 1)
    await world.user(7, Function.DEVICE_VIEW).refused(404, "POST", path, {})


async def test_events_and_services_have_history(world: World):
    """Each value is the object of the parameters."""
    thing = await bell(world, "H-10", ("rung", {}), ("pressed", {"times": 2}), ("rung", {}))
    ids = await world.ids(thing)
    commands = CommandService(
        things=world.foundation.things.directory,
        store=world.foundation.commands,
        latest=world.foundation.values,
        ids=IdAllocator(world.database, "tasks"),
        sender=NoIntegrationSender(),
        lifetime_seconds=60,
        coded_lifetime_seconds=60,
    )
    who = Principal(PrincipalKind.USER, "default", "1")
    known = (await world.foundation.things.directory.find_by_sn(["H-10"]))["H-10"]
    drafts = [
        commands.draft_service_call(known, "mute", {}),
        commands.draft_service_call(known, "ring", None),
    ]
    await commands.issue(who, drafts)

    for member, values in (
        ("rung", [{}, {}]),
        ("pressed", [{"times": 2}]),
        ("pressed.times", [2]),
        ("mute", [{}]),
        ("ring", [{}]),
        ("ring.times", []),
    ):
        one = ids[f"direct.device.H-10.{member}"]
        body = {"entity_id": one}
        rows = await world.admin().done("POST", SEARCH, body)
        assert [row["value"] for row in rows] == values, member
        counted = await world.admin().done("POST", AGGREGATE, body | {"aggregate_type": "COUNT"})
        total = sum(row["count"] for row in counted.get("count_result", []))
        assert total == len(values), member
        last = await world.admin().done("POST", AGGREGATE, body | {"aggregate_type": "LAST"})
        assert last.get("value") == (values[0] if values else None), member
        exported = await world.admin().ask("GET", f"/entity/export?ids={one}")
        cells = [line[2] for line in csv.reader(io.StringIO(exported.text))][1:]
        assert cells == [msgspec.json.encode(value).decode() for value in values], member


async def test_values_from_before_a_type_change_are_shown(world: World):
    """Text from before a type change is shown, but not aggregated."""
    thing, ids = await lamp(world, "H-9")
    await world.history(thing, (START, {"colour": "abc", "level": "old"}), (T, {"colour": "1"}))
    admin = world.admin()
    for name, expected in (("colour", [1, "abc"]), ("level", ["old"])):
        found = await search(admin, ids[name])
        assert [row["value"] for row in found] == expected
        exported = await admin.ask("GET", f"/entity/export?ids={ids[name]}&end_timestamp={END}")
        assert expected[-1] in exported.text
    found = {kind: await aggregate(admin, ids["colour"], kind) for kind in ("MIN", "MAX", "SUM")}
    assert {kind: folded["value"] for kind, folded in found.items()} == {
        "MIN": 1,
        "MAX": 1,
        "SUM": 1,
    }
    counted = await aggregate(admin, ids["colour"], "COUNT")
    assert {row["value"] for row in counted["count_result"]} == {1, "abc"}


async def test_an_export_has_the_whole_history(world: World):
    """An export may exceed one batch, and the bounds have two parameter names."""
    thing, ids = await lamp(world, "H-8")
    partition = Partitions(world.database)
    await world.history(thing, (T, {"level": 0}))
    collection = partition.collection(T // PARTITION_MS)
    first = await collection.find_one({"p.level": 0, "_id": {"$gte": thing.to_bytes(8, "big")}})
    rows = [
        {"_id": first["_id"][:16] + (at + 10).to_bytes(8, "big"), "p": {"level": at}}
        for at in range(1, 2501)
    ]
    await collection.insert_many(rows)
    answer = await world.admin().ask(
        "GET", f"/entity/export?ids={ids['level']}&startTimestamp={T}&endTimestamp={T + 1}"
    )
    values = [line[2] for line in csv.reader(io.StringIO(answer.text))]
    assert values == ["Value", *map(str, range(2500, -1, -1))]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "ids"),
        ("ids=x", "ids"),
        ("ids=0", "ids"),
        ("ids=", "ids"),
        ("ids=5&start_timestamp=x", "start_timestamp"),
        ("ids=5&start_timestamp=9&end_timestamp=8", "end_timestamp"),
        ("ids=5&endTimestamp=-1", "end"),
    ],
)
async def test_an_invalid_export_is_named(world: World, query: str, field: str):
    """An error is returned before the file begins."""
    content = await world.admin().refused(400, "GET", f"/entity/export?{query}")
    assert content["detail_message"].startswith(field), content


async def test_values_from_before_a_property_became_write_only_are_hidden(world: World):
    """History and latest values conceal them until they are removed."""
    lock = {"version": "v1.0", "properties": [property_of("pin", "STRING", "W")]}
    lock["properties"] += [
        property_of("users", "ARRAY"),
        property_of("users._item", "STRUCT"),
        property_of("users._item.name", "STRING"),
        property_of("users._item.code", "STRING", "W"),
    ]
    await world.put_product("LOCK", lock)
    thing = await world.add_direct("L-1", "LOCK")
    values = {"pin": "s3cret-pin", "users": [{"name": "ann", "code": "s3cret-code"}]}
    await world.history(thing, (T, values))
    latest = {key: {"v": value, "t": T} for key, value in values.items()}
    await world.database["latest"].insert_one({"_id": thing, "t": T, "v": latest})
    admin, ids = world.admin(), await world.ids(thing)

    texts = []
    for id_ in ids.values():
        times = {"start_timestamp": START, "end_timestamp": END}
        texts += [
            await admin.ask("GET", f"/entity/{id_}/status"),
            await admin.ask("GET", f"/entity/export?ids={id_}"),
            await admin.ask("POST", "/entity/history/search", {"entity_ids": [id_], **times}),
        ]
        texts += [
            await admin.ask(
                "POST",
                "/entity/history/aggregate",
                {"entity_id": id_, "aggregate_type": kind, **times},
            )
            for kind in ("LAST", "MIN", "COUNT")
        ]
    wanted = {"entity_filter": {"DEVICE_ID": {"operator": "EQ", "values": [str(thing)]}}}
    texts.append(await admin.ask("POST", "/entity/advanced-search", wanted))

    assert [(str(text.url), text.status_code) for text in texts if "s3cret" in text.text] == []
    assert any("ann" in text.text for text in texts), texts[0].text
