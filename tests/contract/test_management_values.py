"""Management API: values of entities, written and read back, through the gateway."""

import asyncio
import csv
import io
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.client import Api
from tests.contract.console import Console, console_accepted, new_name
from tests.contract.hall import UNKNOWN, Hall, add_custom, add_dashboard, make_hall
from tests.contract.shapes import (
    Counted,
    EntityStatus,
    Folded,
    HistoryItem,
    Page,
    ValueFault,
    shaped,
)

pytestmark = pytest.mark.xdist_group("platform")

BAD = "parameter_validation_failed"
HISTORY, AGGREGATE = "/entity/history/search", "/entity/history/aggregate"
UPDATE, CALL = "/entity/property/update", "/entity/service/call"
SETTINGS = "/tenant/settings"
FUNCTIONS = (
    "dashboard.view",
    "entity_data.view",
    "entity_data.edit",
    "entity_data.export",
    "integration.view",
)
BASE = int(time.time() * 1000) - 3_600_000
"""The time of the first report, in ms; an hour ago."""
REPORTS: tuple[dict[str, Any], ...] = (
    {"temperature": 20.5, "counter": 5, "led": False, "label": "b", "lorawan_class": "0"},
    {"temperature": 22.25, "counter": 7, "led": True, "label": "c", "lorawan_class": "2"},
    {"temperature": 20.5, "counter": 6, "led": True, "label": "a", "lorawan_class": "2"},
)
"""Reported one second apart."""


@pytest.fixture(scope="session")
async def room(admin: Console, api: Api) -> AsyncIterator[Hall]:
    """A device with exactly `REPORTS` behind it, from `BASE` on."""
    made = await make_hall(admin, api, reports=False)
    for at, properties in enumerate(REPORTS):
        await made.report(BASE + 1000 * at, **properties)
    yield made
    for person in made.people:
        await person.close()


async def history(console: Console, **body: Any) -> list[HistoryItem]:
    """The bare list of a search."""
    return shaped(await console.done("POST", HISTORY, body), list[HistoryItem])


async def test_history_is_newest_first(room: Hall) -> None:
    """A bare list, and a page when one is asked for; the time is a number."""
    counter = room.entities["counter"]
    listed = await history(room.admin, entity_id=counter)
    assert [(entry.timestamp, entry.value) for entry in listed] == [
        (BASE + 2000, 6), (BASE + 1000, 7), (BASE, 5),
    ]  # fmt: skip
    assert {(entry.entity_id, entry.value_type) for entry in listed} == {(counter, "LONG")}
    body = {"entity_id": int(counter), "page_size": 2, "page_number": 2}
    page = shaped(await room.admin.done("POST", HISTORY, body), Page[HistoryItem])
    assert (page.page_size, page.page_number, page.total) == (2, 2, 3)
    assert page.content == listed[2:]
    order = {"sorts": [{"direction": "ASC", "property": "timestamp"}]}
    assert await history(room.admin, entity_id=counter, **order) == listed[::-1]


async def test_history_of_some_entities_and_a_span(room: Hall) -> None:
    """Both bounds are inclusive; of several entities in the order of time."""
    ids = [room.entities["led"], room.entities["label"]]
    found = await history(
        room.admin, entity_ids=ids, start_timestamp=BASE + 1000, end_timestamp=BASE + 2000
    )
    assert [entry.timestamp - BASE for entry in found] == [2000, 2000, 1000, 1000]
    assert {entry.entity_id for entry in found} == set(ids)
    span = {"start_timestamp": BASE + 2001, "end_timestamp": BASE + 9000}
    assert await history(room.admin, entity_ids=ids, **span) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "entity_id"),
        ({"entity_id": "x"}, "entity_id"),
        ({"entity_id": 0}, "entity_id"),
        ({"entity_ids": ["x"]}, "entity_ids[0]"),
        ({"entity_ids": [str(one) for one in range(1, 102)]}, "entity_ids"),
        ({"entity_id": "1", "start_timestamp": "yesterday"}, "start_timestamp"),
        ({"entity_id": "1", "start_timestamp": -1}, "start_timestamp"),
        ({"entity_id": "1", "end_timestamp": 10**15}, "end_timestamp"),
        ({"entity_id": "1", "start_timestamp": 6, "end_timestamp": 5}, "end_timestamp"),
        ({"entity_id": "1", "page_size": 0}, "page_size"),
        ({"entity_id": "1", "sorts": [{"property": "value"}]}, "sorts[0].property"),
    ],
)
async def test_bad_history(admin: Console, body: Any, field: str) -> None:
    """A 400 that names the field; `end` before `start` is one."""
    await admin.fails(400, BAD, "POST", HISTORY, body, field)


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("counter", "LAST", 6), ("counter", "MIN", 5), ("counter", "MAX", 7),
        ("counter", "SUM", 18), ("counter", "AVG", 6.0),
        ("temperature", "LAST", 20.5), ("temperature", "MAX", 22.3),
        ("temperature", "SUM", 63.3), ("temperature", "AVG", 21.1),
        ("led", "LAST", True), ("led", "MIN", False), ("led", "MAX", True),
        ("label", "LAST", "a"), ("label", "MIN", "a"), ("label", "MAX", "c"),
        ("lorawan_class", "LAST", 2), ("lorawan_class", "MIN", 0),
    ],
)  # fmt: skip
async def test_aggregates(room: Hall, path: str, kind: str, value: Any) -> None:
    """LAST, MIN and MAX of every type; SUM and AVG of numbers."""
    body = {"entity_id": room.entities[path], "aggregate_type": kind, "start_timestamp": 0}
    found = shaped(await room.admin.done("POST", AGGREGATE, body), Folded)
    assert (found.value, isinstance(found.value, bool)) == (value, isinstance(value, bool))


async def test_counts(room: Hall) -> None:
    """COUNT has a row for each value, and no `value` of its own."""
    for path, expected in (("led", {True: 2, False: 1}), ("temperature", {20.5: 2, 22.3: 1})):
        body = {"entity_id": room.entities[path], "aggregate_type": "COUNT"}
        found = shaped(await room.admin.done("POST", AGGREGATE, body), Counted)
        assert {one.value: one.count for one in found.count_result} == expected


async def test_aggregates_of_a_period(room: Hall) -> None:
    """Only values in the period count. A period without values gets an empty object."""
    body = {"entity_id": room.entities["counter"], "start_timestamp": BASE + 1000}
    span = body | {"end_timestamp": BASE + 2000}
    found = await room.admin.done("POST", AGGREGATE, span | {"aggregate_type": "SUM"})
    assert found["value"] == 13
    empty = {"start_timestamp": 1, "end_timestamp": 2}
    for kind in ("LAST", "MIN", "MAX", "AVG", "SUM", "COUNT"):
        wanted = body | empty | {"aggregate_type": kind}
        assert await room.admin.done("POST", AGGREGATE, wanted) == {}


@pytest.mark.parametrize(
    ("path", "kind"),
    [("led", "AVG"), ("led", "SUM"), ("label", "AVG"), ("label", "SUM"),
     ("reporting_interval", "SUM"), ("secret", "AVG")],
)  # fmt: skip
async def test_aggregates_that_a_type_does_not_have(room: Hall, path: str, kind: str) -> None:
    """A mean or a sum of what is no number is a 400."""
    body = {"entity_id": room.entities[path], "aggregate_type": kind}
    await room.admin.fails(400, BAD, "POST", AGGREGATE, body, "aggregate_type")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"aggregate_type": None}, "aggregate_type"),
        ({"aggregate_type": "MEDIAN"}, "aggregate_type"),
        ({"entity_id": None}, "entity_id"),
        ({"entity_id": "x"}, "entity_id"),
        ({"start_timestamp": 9, "end_timestamp": 8}, "end_timestamp"),
    ],
)
async def test_bad_aggregate(admin: Console, changes: Any, field: str) -> None:
    """A 400 that names the field."""
    body = {"entity_id": "1", "aggregate_type": "LAST"} | changes
    body = {name: value for name, value in body.items() if value is not None}
    await admin.fails(400, BAD, "POST", AGGREGATE, body, field)


async def exported(console: Console, query: str) -> list[list[str]]:
    """The rows of an export."""
    answer = await console.ask("GET", f"/entity/export?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == "text/csv"
    name = answer.headers["content-disposition"]
    assert re.fullmatch(r"attachment; filename=EntityData_[0-9TZ]+\.csv", name)
    return list(csv.reader(io.StringIO(answer.text)))


async def test_export(room: Hall) -> None:
    """The columns of the notes; an enumerated value by its label, the others as they are."""
    ids = f"ids={room.entities['lorawan_class']}&ids={room.entities['temperature']}"
    head, *rows = await exported(room.admin, f"&{ids}")
    assert head == [
        "Entity Name", "Entity Identifier", "Value", "Update Time", "Integration", "Device",
    ]  # fmt: skip
    assert [row[2] for row in rows] == ["Class C", "Class C", "Class A", "20.5", "22.3", "20.5"]
    name = (await room.admin.done("GET", f"/device/{room.device}"))["name"]
    assert {(row[0], row[1], row[4], row[5]) for row in rows} == {
        ("LoRaWAN class", room.key("lorawan_class"), "Direct connection", name),
        ("Temperature", room.key("temperature"), "Direct connection", name),
    }
    when = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(BASE / 1000))
    assert [row[3] for row in rows][2] == when


async def test_export_of_a_span(room: Hall) -> None:
    """Both spellings of the bounds."""
    one = f"ids={room.entities['counter']}"
    for start, end in (("start_timestamp", "end_timestamp"), ("startTimestamp", "endTimestamp")):
        rows = await exported(room.admin, f"{one}&{start}={BASE + 1}&{end}={BASE + 1000}")
        assert [row[2] for row in rows[1:]] == ["7"]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("", 400, "ids"),
        ("ids=", 400, "ids"),
        ("ids=x", 400, "ids"),
        ("ids=0", 400, "ids"),
        ("ids=1&start_timestamp=x", 400, "start_timestamp"),
        ("ids=1&start_timestamp=6&end_timestamp=5", 400, "end_timestamp"),
        ("&".join(f"ids={one}" for one in range(1, 1002)), 400, "ids"),
        (f"ids={UNKNOWN}", 404, "entity_id"),
    ],
)
async def test_bad_export(admin: Console, query: str, status: int, field: str) -> None:
    """Refused in the envelope, before a line is written; the parameter is named."""
    answer = await admin.ask("GET", f"/entity/export?{query}")
    assert answer.status_code == status, answer.text
    assert answer.json()["detail_message"].startswith(field), answer.text


async def test_update_of_a_device_is_a_command(hall: Hall) -> None:
    """Values as text are taken; members of an object are set together; unknown keys go."""
    exchange = {
        hall.key("reporting_interval.time"): "30",
        hall.key("reporting_interval.unit"): "1",
        hall.key("led"): "false",
        hall.key("temperature"): 1,
        "direct.device.nobody.led": True,
    }
    answer = await hall.admin.ask("POST", UPDATE, {"exchange": exchange})
    console_accepted(answer, data=False)
    wanted = {"reporting_interval": {"time": 30, "unit": "1"}, "led": False}
    waiting = await hall.api.commands(hall.sn, hall.secret)  # of other tests too
    (command,) = (one for one in waiting if one.get("properties") == wanted)
    assert command["kind"] == "SET_PROPERTIES"
    reply = {"commandId": command["commandId"], "status": "SUCCESS"}
    await hall.api.reply(hall.sn, hall.secret, reply)
    status = await hall.admin.done("GET", f"/entity/{hall.entities['led']}/status")
    assert status["value"] is False


async def test_update_of_a_custom_entity_is_in_force(admin: Console) -> None:
    """When the answer comes the value is there, and so is its history."""
    made = await add_custom(admin)
    for value in ("5", 6):
        body = {"exchange": {made["key"]: value}}
        console_accepted(await admin.ask("POST", UPDATE, body), data=False)
        status = shaped(await admin.done("GET", f"/entity/{made['id']}/status"), EntityStatus)
        assert (status.value, status.value_type) == (int(value), "LONG")
    assert [one.value for one in await history(admin, entity_id=made["id"])] == [6, 5]


BOUNDS = {"min": "0", "max": "10"}
LENGTHS = {"min_length": "2", "max_length": "3"}


@pytest.mark.parametrize(
    ("value_type", "attribute", "value", "code"),
    [
        ("LONG", {}, None, "null"),
        ("LONG", {}, "abc", "not_match_type"),
        ("LONG", {}, 1.5, "not_match_type"),
        ("LONG", {}, True, "not_match_type"),
        ("LONG", {}, 2**63, "not_match_type"),
        ("LONG", {}, [], "not_match_type"),
        ("DOUBLE", {}, "x", "not_match_type"),
        ("BOOLEAN", {}, "yes", "not_match_type"),
        ("BOOLEAN", {}, 2, "not_match_type"),
        ("STRING", {}, {}, "not_match_type"),
        ("BINARY", {}, "not base64!", "not_match_type"),
        ("LONG", BOUNDS, 11, "out_of_range"),
        ("DOUBLE", BOUNDS, "-0.5", "out_of_range"),
        ("LONG", {"min": 0}, -1, "less_than_min"),
        ("LONG", {"max": 10}, 11, "greater_than_max"),
        ("STRING", LENGTHS, "a", "length_out_of_range"),
        ("STRING", {"min_length": 2}, "a", "length_shorter_than_min_length"),
        ("STRING", {"max_length": 3}, "abcd", "length_longer_than_max_length"),
        ("LONG", {"enum": {"0": "Off", "1": "On"}}, 2, "invalid_enum"),
        ("STRING", {"enum": {"off": "Off"}}, "on", "invalid_enum"),
        ("STRING", {"format": "HEX"}, "xyz", "not_match_format"),
    ],
)
async def test_values_outside_of_their_bounds(
    admin: Console, value_type: str, attribute: Any, value: Any, code: str
) -> None:
    """400 `multiple_error`; `data` says of each value what is wrong, with a code of the notes."""
    made = await add_custom(admin, value_type=value_type, value_attribute=attribute)
    body = {"exchange": {made["key"]: value}}
    field = f"exchange.{made['key']}"
    told = await admin.fails(400, "multiple_error", "POST", UPDATE, body, field)
    (fault,) = shaped(told["data"], list[ValueFault])
    assert fault.error_code == f"entity_value_{code}"
    assert (fault.args["entity_key"], fault.args["entity_name"]) == (made["key"], made["name"])
    assert made["name"] in fault.error_message
    assert await admin.done("GET", f"/entity/{made['id']}/status") == {}


async def test_nothing_is_written_unless_all_is_right(hall: Hall) -> None:
    """One bad value among good ones, and no command goes out; every bad one is listed."""
    exchange = {hall.key("led"): True, hall.key("label"): "far too long", hall.key("rules"): [{}]}
    told = await hall.admin.fails(400, "multiple_error", "POST", UPDATE, {"exchange": exchange})
    assert [entry["args"]["entity_key"] for entry in told["data"]] == [hall.key("label")]
    only = {"exchange": {hall.key("rules"): [{}]}}
    told = await hall.admin.fails(400, "multiple_error", "POST", UPDATE, only)
    assert told["detail_message"].startswith(f"exchange.{hall.key('rules')}")
    assert await hall.api.commands(hall.sn, hall.secret, wait=0) == []


@pytest.mark.parametrize("path", [UPDATE, CALL])
@pytest.mark.parametrize(
    "body",
    [{}, {"exchange": {}}, {"exchange": []}, {"exchange": {"no.such.key": 1}},
     {"exchange": {f"direct.device.S.k{at}": 1 for at in range(1001)}}],
)  # fmt: skip
async def test_bad_exchange(admin: Console, path: str, body: Any) -> None:
    """Without an entity that can be used there is a 400 that names `exchange`."""
    await admin.fails(400, BAD, "POST", path, body, "exchange")


async def test_entities_that_cannot_be_written_or_called(hall: Hall) -> None:
    """A read-only property, an event, and a call of a property leave nothing to do: 400."""
    for path, key in ((UPDATE, "temperature"), (UPDATE, "reboot"), (UPDATE, "historical_data"),
                      (CALL, "led"), (CALL, "historical_data")):  # fmt: skip
        body = {"exchange": {hall.key(key): 1}}
        await hall.admin.fails(400, BAD, "POST", path, body, "exchange")


@pytest.mark.parametrize(
    ("exchange", "inputs"),
    [({"reboot": None}, {}), ({"reboot": {}}, {}), ({"measure.times": "3"}, {"times": 3})],
)
async def test_call_of_a_device(hall: Hall, exchange: Any, inputs: Any) -> None:
    """The command goes out with its inputs, and `data` has the outputs of the reply."""
    body = {"entity_id": "1", "exchange": {hall.key(path): one for path, one in exchange.items()}}
    called = asyncio.create_task(hall.admin.done("POST", CALL, body))
    (command,) = await hall.api.commands(hall.sn, hall.secret)
    assert command.get("inputs", {}) == inputs
    outputs = {"mean": 1.5} if inputs else {}
    reply = {"commandId": command["commandId"], "status": "SUCCESS", "outputs": outputs}
    await hall.api.reply(hall.sn, hall.secret, reply)
    assert await called == outputs


async def test_a_call_that_a_device_refuses(hall: Hall) -> None:
    """The reason of the device is told; it is nobody's 500."""
    body = {"exchange": {hall.key("reboot"): None}}
    called = asyncio.create_task(hall.admin.ask("POST", CALL, body))
    (command,) = await hall.api.commands(hall.sn, hall.secret)
    reply = {"commandId": command["commandId"], "status": "FAILED", "error": "too hot"}
    await hall.api.reply(hall.sn, hall.secret, reply)
    answer = await called
    assert answer.status_code == 502, answer.text
    assert "too hot" in answer.json()["error_message"]


@pytest.mark.parametrize(
    ("exchange", "code"),
    [
        ({"measure.times": 10}, "out_of_range"),
        ({"measure.times": "many"}, "not_match_type"),
        ({"measure": {"speed": 1}}, "not_match_type"),
        ({"measure": 7}, "not_match_type"),
    ],
)
async def test_bad_inputs(hall: Hall, exchange: Any, code: str) -> None:
    """Inputs outside of their TSL have the codes of values."""
    body = {"exchange": {hall.key(path): value for path, value in exchange.items()}}
    told = await hall.admin.fails(400, "multiple_error", "POST", CALL, body)
    assert [entry["error_code"] for entry in told["data"]] == [f"entity_value_{code}"]
    assert told["detail_message"].startswith(f"exchange.{hall.key('measure')}")


async def test_devices_are_not_added_by_a_call(admin: Console) -> None:
    """The services that add and delete devices are used at `/device` alone."""
    body = {"exchange": {f"{DIRECT_INTEGRATION}.integration.add_device.sn": "S1"}}
    await admin.fails(400, "method_not_allowed", "POST", CALL, body, "exchange")


@pytest.mark.parametrize("kind", ["ENTITY", "DEVICE", "INTEGRATION"])
async def test_values_with_one_grant(room: Hall, kind: str) -> None:
    """The granted entity is read and written. Others are unknown."""
    label, led = room.entities["label"], room.entities["led"]
    ids = {"ENTITY": label, "DEVICE": room.device, "INTEGRATION": DIRECT_INTEGRATION}
    person = await room.person(*FUNCTIONS, grants=((kind, ids[kind]),))
    assert [one.value for one in await history(person, entity_id=label)] == ["a", "c", "b"]
    body = {"entity_id": label, "aggregate_type": "MAX"}
    assert (await person.done("POST", AGGREGATE, body))["value"] == "c"
    assert len(await exported(person, f"ids={label}")) == 4
    exchange = {room.key("label"): "new"}
    console_accepted(await person.ask("POST", UPDATE, {"exchange": exchange}), data=False)
    (command,) = await room.api.commands(room.sn, room.secret)
    assert command["properties"] == {"label": "new"}
    reply = {"commandId": command["commandId"], "status": "FAILED", "error": "no"}
    await room.api.reply(room.sn, room.secret, reply)
    if kind == "ENTITY":
        await _hidden(person, led, 404, "data_no_found")
        both = await history(person, entity_ids=[led, label])
        assert {one.entity_id for one in both} == {label}  # one's refusal is its own
        assert len(await exported(person, f"ids={led}&ids={label}")) == 4
        body = {"exchange": {room.key("led"): True}}
        await person.fails(400, BAD, "POST", UPDATE, body, "exchange")


@pytest.mark.parametrize(
    ("others", "status", "code"),
    [(False, 403, "forbidden_permission"), (True, 404, "data_no_found")],
)
async def test_without_a_grant_of_it(room: Hall, others: bool, status: int, code: str) -> None:
    """No grant at all is a 403; with other grants the entity is unknown."""
    grants = (("DASHBOARD", await add_dashboard(room.admin)),) if others else ()
    person = await room.person(*FUNCTIONS, grants=grants)
    await _hidden(person, room.entities["led"], status, code)
    written = (403, code, "") if status == 403 else (400, BAD, "exchange")
    for path, key in ((UPDATE, "led"), (CALL, "reboot")):
        body = {"exchange": {room.key(key): None}}
        await person.fails(written[0], written[1], "POST", path, body, written[2])


async def test_viewers_command_while_the_setting_is_on(room: Hall) -> None:
    """A change of the tenant's setting applies to the next request of a user."""
    viewer = await room.person("device.view", grants=(("DEVICE", room.device),))
    attempts = ((UPDATE, {"exchange": {room.key("led"): True}}), (CALL, {"exchange": {}}))

    async def is_refused() -> None:
        assert (await viewer.done("GET", "/user"))["may_command"] is False
        for path, body in attempts:
            await viewer.fails(403, "forbidden_permission", "POST", path, body)

    await is_refused()
    for _ in range(5):
        await room.admin.done("PUT", SETTINGS, {"viewers_may_command": True})
        assert (await viewer.done("GET", "/user"))["may_command"] is True
        await viewer.fails(400, BAD, "POST", CALL, attempts[1][1], "exchange")
        await room.admin.done("PUT", SETTINGS, {"viewers_may_command": False})
        await is_refused()


async def test_in_another_tenant(room: Hall, other_admin: Console) -> None:
    """Its super-admin reads and writes nothing of ours."""
    await _hidden(other_admin, room.entities["led"], 404, "data_no_found")
    made = await add_custom(room.admin, name=new_name())
    for path, key in ((UPDATE, room.key("led")), (UPDATE, made["key"]), (CALL, room.key("reboot"))):
        await other_admin.fails(400, BAD, "POST", path, {"exchange": {key: 1}}, "exchange")


async def _hidden(person: Console, one: str, status: int, code: str) -> None:
    """An entity has no data, alone or with others that have none, and cannot be exported."""
    assert await history(person, entity_id=one) == []
    assert await history(person, entity_ids=[one, UNKNOWN]) == []
    assert await person.done("POST", AGGREGATE, {"entity_id": one, "aggregate_type": "LAST"}) == {}
    assert await person.done("GET", f"/entity/{one}/status") == {}
    for query in (f"ids={one}", f"ids={UNKNOWN}&ids={one}"):
        await person.fails(status, code, "GET", f"/entity/export?{query}")
