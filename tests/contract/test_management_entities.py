"""Management API: entities and what they are now, through the gateway."""

from typing import Any
from uuid import uuid4

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.console import Console, console_accepted, new_name
from tests.contract.hall import ALL, UNKNOWN, Hall, add_custom, add_dashboard, add_device
from tests.contract.shapes import Entity, EntityMeta, EntityStatus, Page, shaped

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]

BAD = "parameter_validation_failed"
ATTRIBUTES = {
    "value_attribute.min": "entity_attribute_min_invalid",
    "value_attribute.max": "entity_attribute_min_greater_than_max",
}
"""Codes of attributes that consoles have a text for."""
SEARCH = "/entity/search"
FUNCTIONS = ("dashboard.view", "dashboard.edit", "entity_data.view", "integration.view")


async def found_by(console: Console, **body: Any) -> list[Entity]:
    """All that a search finds."""
    return shaped(await console.done("POST", SEARCH, ALL | body), Page[Entity]).content


def paths(hall: Hall, found: list[Entity]) -> set[str]:
    """The members of the device among them."""
    prefix = hall.key("")
    return {
        entry.entity_key.removeprefix(prefix)
        for entry in found
        if entry.entity_key.startswith(prefix)
    }


async def test_search_shows_every_field(hall: Hall) -> None:
    """A member of a device as lists show it; a child names its parent."""
    by_path = {
        one.entity_key.removeprefix(hall.key("")): one
        for one in await found_by(hall.admin, keyword=hall.key(""))
    }
    assert {path: one.entity_id for path, one in by_path.items()} == hall.entities
    time = by_path["reporting_interval.time"]
    device = await hall.admin.done("GET", f"/device/{hall.device}")
    assert (time.entity_name, time.entity_parent_name) == ("Time", "Reporting interval")
    assert (time.entity_type, time.entity_value_type, time.entity_access_mod) == (
        "PROPERTY", "LONG", "RW",
    )  # fmt: skip
    assert time.entity_value_attribute == {"unit": "min", "min": 1, "max": 1440}
    assert time.device_id == hall.device
    assert (time.device_name, time.integration_name) == (device["name"], "Direct connection")
    assert (time.entity_is_customized, time.entity_created_at) == (False, device["created_at"])
    assert by_path["reporting_interval"].entity_value_attribute == {}


async def test_search_is_a_list_or_a_page(hall: Hall) -> None:
    """A bare list; a page when one is asked for, newest first."""
    keyword = {"keyword": hall.key("")}
    listed = shaped(await hall.admin.done("POST", SEARCH, keyword), list[Entity])
    page = shaped(
        await hall.admin.done("POST", SEARCH, keyword | {"page_size": 3, "page_number": 2}),
        Page[Entity],
    )
    assert (page.page_size, page.page_number, page.total) == (3, 2, len(hall.entities))
    assert page.content == listed[3:6]
    ids = [int(entry.entity_id) for entry in listed]
    assert ids == sorted(ids, reverse=True)


@pytest.mark.parametrize("name", ["key", "entity_key", "entityKey"])
async def test_search_in_order(hall: Hall, name: str) -> None:
    """`sorts` takes the property in the spellings that clients use."""
    order = [{"direction": "DESC", "property": name}]
    keys = [one.entity_key for one in await found_by(hall.admin, keyword=hall.sn, sorts=order)]
    assert keys == sorted(keys, reverse=True)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"entity_type": ["SERVICE"]}, {"reboot", "measure", "measure.times"}),
        ({"entity_type": ["EVENT"], "exclude_children": True}, {"historical_data"}),
        ({"entity_value_type": ["BOOLEAN"]}, {"led"}),
        ({"entity_value_type": ["OBJECT"], "entity_type": ["PROPERTY"]},
         {"reporting_interval", "rules"}),
        ({"entity_access_mod": ["R"]}, {"temperature", "counter", "battery"}),
        ({"entity_access_mod": ["W"], "entity_type": ["PROPERTY"]}, {"secret"}),
        ({"exclude_children": True, "entity_type": ["PROPERTY"], "entity_access_mod": ["RW"]},
         {"reporting_interval", "lorawan_class", "led", "label", "rules"}),
        ({"keyword": "TEMPERATURE"}, {"temperature", "historical_data.temperature"}),
        ({"customized": True}, set()),
        ({"entity_ids": []}, set()),
    ],
)  # fmt: skip
async def test_filters(hall: Hall, filters: Any, expected: set[str]) -> None:
    """Every filter narrows; of a list any value will do."""
    assert paths(hall, await found_by(hall.admin, **filters)) == expected


async def test_filter_of_ids(hall: Hall) -> None:
    """Ids as strings and as numbers; unknown ones are passed over."""
    wanted = [hall.entities["led"], int(hall.entities["label"]), UNKNOWN]
    assert paths(hall, await found_by(hall.admin, entity_ids=wanted)) == {"led", "label"}


async def test_keyword_finds_devices_and_integrations(hall: Hall) -> None:
    """A part of the name of the device finds all its entities."""
    name = (await hall.admin.done("GET", f"/device/{hall.device}"))["name"]
    assert paths(hall, await found_by(hall.admin, keyword=name.upper())) == set(hall.entities)
    assert paths(hall, await found_by(hall.admin, keyword="direct conn")) == set(hall.entities)


async def test_custom_entities_are_found(admin: Console) -> None:
    """They are `customized`; hidden ones are found when they are asked for."""
    shown = await add_custom(admin)
    hidden = await add_custom(admin, visible=False)
    for more, expected in (
        ({}, {shown["id"]}),
        ({"show_hidden": True}, {shown["id"], hidden["id"]}),
    ):
        found = await found_by(admin, customized=True, **more)
        assert {entry.entity_id for entry in found} & {shown["id"], hidden["id"]} == expected
        assert all(entry.entity_is_customized for entry in found)
    assert all(not one.entity_is_customized for one in await found_by(admin, customized=False))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"entity_type": "PROPERTY"}, "entity_type"),
        ({"entity_type": ["THING"]}, "entity_type[0]"),
        ({"entity_value_type": ["INT"]}, "entity_value_type[0]"),
        ({"entity_access_mod": ["X"]}, "entity_access_mod[0]"),
        ({"entity_ids": ["x"]}, "entity_ids[0]"),
        ({"keyword": "k" * 513}, "keyword"),
        ({"keyword": {}}, "keyword"),
        ({"exclude_children": "perhaps"}, "exclude_children"),
        ({"page_size": -1}, "page_size"),
        ({"page_number": 0}, "page_number"),
        ({"sorts": [{"property": "value"}]}, "sorts[0].property"),
        ({"sorts": "key"}, "sorts"),
    ],
)
async def test_bad_search(admin: Console, body: Any, field: str) -> None:
    """A 400 that names the field."""
    await admin.fails(400, BAD, "POST", SEARCH, body, field)


async def test_children(hall: Hall) -> None:
    """Members of an object, inputs of a service, outputs of an event; of others an empty list."""
    for path, expected in {
        "reporting_interval": ["reporting_interval.time", "reporting_interval.unit"],
        "measure": ["measure.times"],
        "historical_data": ["historical_data.timestamp", "historical_data.temperature"],
        "rules": [],
        "led": [],
    }.items():
        found = await hall.admin.done("GET", f"/entity/{hall.entities[path]}/children")
        shown = shaped(found, list[Entity])
        assert [entry.entity_key for entry in shown] == [hall.key(child) for child in expected]
    (times,) = await hall.admin.done("GET", f"/entity/{hall.entities['measure']}/children")
    assert times["entity_access_mod"] == "W"  # or consoles show no field for it


async def test_the_metadata_of_an_entity(hall: Hall) -> None:
    """The response has its definition and its device, but no value."""
    device = await hall.admin.done("GET", f"/device/{hall.device}")
    for path, value_type in (("label", "STRING"), ("reporting_interval", "OBJECT")):
        meta = shaped(
            await hall.admin.done("GET", f"/entity/{hall.entities[path]}/meta"), EntityMeta
        )
        assert (meta.id, meta.key) == (hall.entities[path], hall.key(path))
        assert (meta.type, meta.value_type, meta.access_mod) == ("PROPERTY", value_type, "RW")
        assert meta.customized is False
        assert (meta.device_id, meta.device_name) == (hall.device, device["name"])


@pytest.mark.parametrize(
    ("path", "value_type", "value"),
    [
        ("temperature", "DOUBLE", 20.5),
        ("led", "BOOLEAN", True),
        ("label", "STRING", "north"),
        ("battery", "LONG", 90),
    ],
)
async def test_status(hall: Hall, path: str, value_type: str, value: Any) -> None:
    """The latest value in its own type; the time of it as text."""
    await hall.report(**{path: value})
    status = shaped(
        await hall.admin.done("GET", f"/entity/{hall.entities[path]}/status"), EntityStatus
    )
    assert (status.value, type(status.value)) == (value, type(value))
    assert status.value_type == value_type


@pytest.mark.parametrize("path", ["secret", "lorawan_class", "reporting_interval", "measure"])
async def test_the_status_of_an_entity_without_a_value(hall: Hall, path: str) -> None:
    """The response is an empty object."""
    assert await hall.admin.done("GET", f"/entity/{hall.entities[path]}/status") == {}


@pytest.mark.parametrize("what", ["children", "meta", "status"])
async def test_ids_that_are_none(admin: Console, what: str) -> None:
    """No number is a 400 and no entity a 404, which name the id; its status is empty."""
    for one in ("x", "0", "1.5", str(2**53)):
        answer = await admin.ask("GET", f"/entity/{one}/{what}")
        assert answer.status_code == 400, answer.text
        assert answer.json()["detail_message"] == "entity_id"
    for path in (f"/entity/{one}/{what}" for one in ("1", UNKNOWN)):
        if what == "status":
            assert await admin.done("GET", path) == {}
        else:
            await admin.fails(404, "data_no_found", "GET", path, field="entity_id")


async def test_custom_entities(admin: Console) -> None:
    """Create (numbers come as text), rename, delete; an object has children."""
    identifier = uuid4().hex
    body = {
        "identifier": identifier, "name": "Level", "type": "PROPERTY", "access_mod": "RW",
        "value_type": "LONG", "value_attribute": {"min": "0", "max": "10", "unit": "m"},
    }  # fmt: skip
    made = shaped(await admin.done("POST", "/entity", body), EntityMeta)
    assert (made.key, made.customized) == (f"system.integration.{identifier}", True)
    assert made.value_attribute == {"min": 0, "max": 10, "unit": "m"}
    console_accepted(await admin.ask("PUT", f"/entity/{made.id}", {"name": "Depth"}), data=False)
    meta = shaped(await admin.done("GET", f"/entity/{made.id}/meta"), EntityMeta)
    assert (meta.name, meta.key) == ("Depth", made.key)
    await admin.fails(409, "data_conflict", "POST", "/entity", body, "identifier")

    parent = await add_custom(admin, value_type="OBJECT", identifier=f"{identifier}p")
    child = await add_custom(admin, identifier="c", parent_identifier=f"{identifier}p")
    assert child["key"] == f"system.integration.{identifier}p.c"
    shown = shaped(await admin.done("GET", f"/entity/{parent['id']}/children"), list[Entity])
    assert [entry.entity_id for entry in shown] == [child["id"]]

    listed = {"entity_ids": [made.id, int(parent["id"]), UNKNOWN]}
    console_accepted(await admin.ask("POST", "/entity/delete", listed), data=False)
    for one in (made.id, parent["id"], child["id"]):
        await admin.fails(404, "data_no_found", "GET", f"/entity/{one}/meta", field="entity_id")


async def test_entities_of_devices_stay(hall: Hall) -> None:
    """A deletion passes over what nobody made; a name is given, and given back to the TSL."""
    led = hall.entities["led"]
    answer = await hall.admin.ask("POST", "/entity/delete", {"entity_ids": [led]})
    console_accepted(answer, data=False)
    await hall.admin.done("GET", f"/entity/{led}/meta")
    meta = shaped(await hall.admin.done("GET", f"/entity/{led}/meta"), EntityMeta)
    for name in ("Lamp of the hall", meta.name):
        answer = await hall.admin.ask("PUT", f"/entity/{led}", {"name": name})
        console_accepted(answer, data=False)
        shown = shaped(await hall.admin.done("GET", f"/entity/{led}/meta"), EntityMeta)
        assert (shown.name, shown.key) == (name, meta.key)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"identifier": None}, "identifier"),
        ({"identifier": ""}, "identifier"),
        ({"identifier": "a.b"}, "identifier"),
        ({"identifier": "a b"}, "identifier"),
        ({"identifier": "i" * 129}, "identifier"),
        ({"name": " "}, "name"),
        ({"name": "n" * 256}, "name"),
        ({"type": "THING"}, "type"),
        ({"value_type": "INT"}, "value_type"),
        ({"access_mod": "X"}, "access_mod"),
        ({"access_mod": None}, "access_mod"),
        ({"value_attribute": []}, "value_attribute"),
        ({"value_attribute": {"min": "low"}}, "value_attribute.min"),
        ({"value_attribute": {"min": 1.5}}, "value_attribute.min"),
        ({"value_attribute": {"min": "5", "max": "4"}}, "value_attribute.max"),
        ({"value_attribute": {"enum": {"a": "A"}}}, "value_attribute.enum.a"),
        ({"value_type": "STRING", "value_attribute": {"max_length": -1}},
         "value_attribute.max_length"),
        ({"value_type": "DOUBLE", "value_attribute": {"fraction_digits": "99"}},
         "value_attribute.fraction_digits"),
    ],
)  # fmt: skip
async def test_bad_custom_entity(admin: Console, changes: Any, field: str) -> None:
    """A 400 that names the field, and the attribute in it."""
    body = {
        "identifier": uuid4().hex, "name": "N", "type": "PROPERTY", "access_mod": "RW",
        "value_type": "LONG", "value_attribute": {},
    }  # fmt: skip
    body = {name: value for name, value in (body | changes).items() if value is not None}
    code = ATTRIBUTES.get(field, BAD)
    await admin.fails(400, code, "POST", "/entity", body, field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/entity/delete", {}),
        ("/entity/delete", {"entity_ids": "1"}),
        ("/entity/delete", {"entity_ids": ["x"]}),
    ],
)
async def test_an_invalid_deletion(admin: Console, path: str, body: Any) -> None:
    """A body without a list of ids gets 400 with the field."""
    told = await admin.fails(400, BAD, "POST", path, body)
    assert told["detail_message"].startswith("entity_ids")


async def test_children_need_an_object(admin: Console) -> None:
    """A parent that is unknown, or no object, is named."""
    leaf = await add_custom(admin)
    for parent in ("nobody", leaf["key"].rpartition(".")[2]):
        body = {
            "identifier": "c", "name": "C", "type": "PROPERTY", "access_mod": "R",
            "value_type": "LONG", "parent_identifier": parent,
        }  # fmt: skip
        await admin.fails(400, BAD, "POST", "/entity", body, "parent_identifier")


GRANTS = {
    "ENTITY": {"led"},
    "DEVICE": None,
    "INTEGRATION": None,
}
"""What each grant shows of the device; None is all of it."""


@pytest.mark.parametrize("kind", GRANTS)
async def test_with_one_grant(hall: Hall, kind: str) -> None:
    """A grant shows an entity by itself, with its device, or with its integration."""
    led, label = hall.entities["led"], hall.entities["label"]
    other, sn = await add_device(hall.admin)
    ids = {"ENTITY": led, "DEVICE": hall.device, "INTEGRATION": DIRECT_INTEGRATION}
    person = await hall.person(*FUNCTIONS, grants=((kind, ids[kind]),))
    found = await found_by(person)
    assert paths(hall, found) == (GRANTS[kind] or set(hall.entities))
    assert any(sn in entry.entity_key for entry in found) is (kind == "INTEGRATION")
    assert all(not entry.entity_is_customized for entry in found)
    for what, shape in (("meta", EntityMeta), ("status", EntityStatus)):
        shaped(await person.done("GET", f"/entity/{led}/{what}"), shape)
    if kind == "ENTITY":
        await person.fails(404, "data_no_found", "GET", f"/entity/{label}/meta")
        assert await person.done("GET", f"/entity/{label}/status") == {}
    await hall.admin.ask("POST", "/device/batch-delete", {"device_id_list": [other]})


@pytest.mark.parametrize(
    ("others", "status", "code"),
    [(False, 403, "forbidden_permission"), (True, 404, "data_no_found")],
)
async def test_without_a_grant_of_it(hall: Hall, others: bool, status: int, code: str) -> None:
    """No grant at all: empty lists and 403; other grants: 404; no value on boards in either."""
    grants = (("DASHBOARD", await add_dashboard(hall.admin)),) if others else ()
    person = await hall.person(*FUNCTIONS, grants=grants)
    assert await person.done("POST", SEARCH, {}) == []
    assert await found_by(person, entity_ids=[hall.entities["led"]]) == []
    for what in ("children", "meta"):
        await person.fails(status, code, "GET", f"/entity/{hall.entities['led']}/{what}")
    assert await person.done("GET", f"/entity/{hall.entities['led']}/status") == {}


async def test_custom_entities_are_everybodys(hall: Hall) -> None:
    """Every user reads them; searches show them to those with `entity_custom.view`."""
    made = await add_custom(hall.admin, name=new_name())
    plain = await hall.person(*FUNCTIONS)
    viewer = await hall.person(*FUNCTIONS, "entity_custom.view")
    for person, expected in ((plain, []), (viewer, [made["id"]])):
        assert await person.done("GET", f"/entity/{made['id']}/status") == {}
        found = await found_by(person, keyword=made["name"])
        assert [entry.entity_id for entry in found] == expected


async def test_in_another_tenant(hall: Hall, other_admin: Console) -> None:
    """Its super-admin finds nothing of ours, custom entities neither."""
    made = await add_custom(hall.admin)
    ids = [hall.entities["led"], made["id"]]
    assert await found_by(other_admin, keyword=hall.sn) == []
    assert await found_by(other_admin, entity_ids=ids) == []
    for id_ in ids:
        for what in ("children", "meta"):
            await other_admin.fails(404, "data_no_found", "GET", f"/entity/{id_}/{what}")
        assert await other_admin.done("GET", f"/entity/{id_}/status") == {}
        await other_admin.fails(404, "data_no_found", "PUT", f"/entity/{id_}", {"name": "N"})
    answer = await other_admin.ask("POST", "/entity/delete", {"entity_ids": ids})
    console_accepted(answer, data=False)
    await hall.admin.done("GET", f"/entity/{made['id']}/meta")


async def test_the_entities_of_a_device_by_columns(hall: Hall) -> None:
    """As the page of a device asks: its properties, by key, with their values as text."""
    asked = {
        "page_size": 999_999,
        "page_number": 1,
        "sorts": [{"direction": "ASC", "property": "key"}],
        "entity_filter": {
            "DEVICE_ID": {"operator": "EQ", "values": [hall.device]},
            "ENTITY_TYPE": {"operator": "ANY_EQUALS", "values": ["PROPERTY"]},
            "ENTITY_NAME": {"operator": "NOT_CONTAINS", "values": ["zzz"]},
        },
    }
    found = shaped(await hall.admin.done("POST", "/entity/advanced-search", asked), Page[Entity])
    rows = {entry.entity_id: entry for entry in found.content}
    temperature = hall.entities["temperature"]
    assert rows[temperature].entity_latest_value == "20.5"
    assert {entry.entity_key.rsplit(".", 1)[0] for entry in found.content} >= {
        hall.key("x").removesuffix(".x")
    }
    body = {"entity_ids": [temperature, int(temperature), UNKNOWN]}
    values = await hall.admin.done("POST", "/entity/batch-get-status", body)
    assert values.keys() == {temperature}
    assert (values[temperature]["value"], values[temperature]["value_type"]) == (20.5, "DOUBLE")
