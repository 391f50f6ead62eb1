"""Management API: devices, through the gateway."""

from typing import Any

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.client import MODEL, Api, new_sn
from tests.contract.console import Console, console_accepted, console_refused, new_name
from tests.contract.hall import ADD_DEVICE, UNKNOWN, Hall, add_custom, add_device
from tests.contract.shapes import Credentials, Device, DeviceDetail, Page, shaped

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]

BAD = "parameter_validation_failed"


def adding(**changes: Any) -> Any:
    """The body of an addition, with changes to its parameters."""
    params = {"sn": new_sn(), "model": MODEL} | changes
    return {
        "name": new_name(),
        "integration": DIRECT_INTEGRATION,
        "param_entities": {f"{ADD_DEVICE}.{name}": value for name, value in params.items()},
    }


async def found_by(console: Console, **body: Any) -> Page[Device]:
    """A page of a search."""
    return shaped(await console.done("POST", "/device/search", body), Page[Device])


async def test_add_and_show(admin: Console) -> None:
    """An added device is in the list and in its detail, with the entities of its product."""
    name = new_name("Étage")
    device, sn = await add_device(admin, name)
    page = await found_by(admin, name=name.upper())
    assert (page.page_size, page.page_number, page.total) == (10, 1, 1)
    shown = page.content[0]
    assert (shown.id, shown.name, shown.identifier) == (device, name, sn)
    assert (shown.key, shown.integration) == (f"direct.device.{sn}", DIRECT_INTEGRATION)
    assert (shown.integration_name, shown.deletable) == ("Direct connection", True)
    detail = shaped(await admin.done("GET", f"/device/{device}"), DeviceDetail)
    assert (detail.id, detail.identifier, detail.created_at) == (device, sn, shown.created_at)
    by_key = {one.key.removeprefix(f"{shown.key}."): one for one in detail.entities}
    assert by_key["temperature"].value_attribute == {
        "unit": "℃", "min": -20, "max": 70, "fraction_digits": 1,
    }  # fmt: skip
    assert by_key["lorawan_class"].value_attribute == {"enum": {"0": "Class A", "2": "Class C"}}
    types = {path: (one.type, one.value_type) for path, one in by_key.items()}
    assert types["reporting_interval"] == ("PROPERTY", "OBJECT")
    assert types["reporting_interval.time"] == ("PROPERTY", "LONG")
    assert types["historical_data.temperature"] == ("EVENT", "DOUBLE")
    assert types["measure.times"] == ("SERVICE", "LONG")
    assert types["rules"] == ("PROPERTY", "OBJECT")
    keys = [one.key for one in detail.entities]
    for one in detail.entities:
        parent = one.key.rpartition(".")[0]
        assert parent not in keys or keys.index(parent) < keys.index(one.key)


async def test_search_pages_and_order(admin: Console) -> None:
    """Always a page; without an order the newest first; 99999 rows may be asked for."""
    prefix = new_name()
    made = [(await add_device(admin, f"{prefix} {at}"))[0] for at in range(3)]
    assert [entry.id for entry in (await found_by(admin, name=prefix)).content] == made[::-1]
    page = await found_by(admin, name=prefix, page_size=2, page_number=2)
    assert (page.total, [entry.id for entry in page.content]) == (3, [made[0]])
    for name in ("name", "created_at", "createdAt"):
        order = [{"direction": "ASC", "property": name}]
        page = await found_by(admin, name=prefix, page_size=99999, sorts=order)
        assert [entry.id for entry in page.content] == made
    assert (await found_by(admin, name="no device has this name")).content == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"page_size": 0}, "page_size"),
        ({"page_size": "ten"}, "page_size"),
        ({"page_number": -1}, "page_number"),
        ({"name": 7}, "name"),
        ({"sorts": [{"property": "password"}]}, "sorts[0].property"),
        ({"sorts": [{"property": "name", "direction": "UP"}]}, "sorts[0].direction"),
    ],
)
async def test_bad_search(admin: Console, body: Any, field: str) -> None:
    """A 400 that names the field."""
    await admin.fails(400, BAD, "POST", "/device/search", body, field)


async def test_devices_of_both_apis_are_the_same(
    admin: Console, api: Api, foreign: Api, hall: Hall
) -> None:
    """A console sees what applications add; an application sees only its own."""
    sn = new_sn()
    device = str(await api.add(sn))
    detail = shaped(await admin.done("GET", f"/device/{device}"), DeviceDetail)
    assert (detail.identifier, detail.integration, detail.deletable) == (
        sn,
        DIRECT_INTEGRATION,
        True,
    )
    for application in (api, foreign):
        await application.fails(404, "GET", f"/devices/{hall.device}")
    await admin.ask("POST", "/device/batch-delete", {"device_id_list": [device]})
    await api.fails(404, "GET", f"/devices/{device}")


async def test_adding_again_is_a_conflict(admin: Console) -> None:
    """The same SN of the same integration: a 409 that names the parameter; it keeps its name."""
    device, sn = await add_device(admin, "Before")
    field = f"param_entities.{ADD_DEVICE}.sn"
    await admin.fails(409, "duplicated_device_eui", "POST", "/device", adding(sn=sn), field)
    page = await found_by(admin, identifier=sn)
    assert [(entry.id, entry.name) for entry in page.content] == [(device, "Before")]


async def test_a_foreign_sn_is_a_conflict(hall: Hall, other_admin: Console) -> None:
    """Another tenant cannot take an SN, nor learns whose it is."""
    body = adding(sn=hall.sn, model="generic")
    answer = await other_admin.ask("POST", "/device", body)
    assert answer.status_code == 409, answer.text
    assert hall.device not in answer.text


KEY = f"param_entities.{ADD_DEVICE}"


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (adding() | {"integration": "nothing"}, 404, "data_no_found", "integration"),
        (adding() | {"integration": "system"}, 400, BAD, "integration"),
        (adding() | {"integration": 7}, 400, BAD, "integration"),
        (adding() | {"name": ""}, 400, BAD, "name"),
        (adding() | {"name": None}, 400, BAD, "name"),
        (adding() | {"param_entities": None}, 400, BAD, "param_entities"),
        ({"integration": DIRECT_INTEGRATION, "param_entities": {}}, 400, BAD, "name"),
        (adding() | {"param_entities": {}}, 400, "multiple_error", f"{KEY}.sn"),
        (adding(sn=None), 400, "multiple_error", f"{KEY}.sn"),
        (adding(sn=["S"]), 400, "multiple_error", f"{KEY}.sn"),
        (adding(sn="S" * 65), 400, "multiple_error", f"{KEY}.sn"),
        (adding(sn="not a serial"), 400, "multiple_error", f"{KEY}.sn"),
        (adding(model="no such product"), 400, "multiple_error", f"{KEY}.model"),
        (adding(colour="red"), 400, BAD, f"{KEY}.colour"),
        (
            adding() | {"param_entities": {"simulator.integration.add_device.model": MODEL}},
            400,
            BAD,
            "param_entities.simulator.integration.add_device.model",
        ),
    ],
)
async def test_an_invalid_addition(
    admin: Console, body: Any, status: int, code: str, field: str
) -> None:
    """The error names the missing, unknown or invalid input of the add service.

    Nothing is added.
    """
    before = (await found_by(admin)).total
    await admin.fails(status, code, "POST", "/device", body, field)
    assert (await found_by(admin)).total == before


async def test_values_outside_of_the_add_service_have_codes(admin: Console) -> None:
    """`data` of the refusal lists every parameter at fault with its own code."""
    interval = "simulator.integration.add_device.interval"
    params = {"simulator.integration.add_device.model": MODEL, interval: "0"}
    body = {"name": "N", "integration": "simulator", "param_entities": params}
    told = await admin.fails(400, "multiple_error", "POST", "/device", body)
    (fault,) = told["data"]
    assert fault["error_code"] == "entity_value_out_of_range"
    assert fault["args"] == {
        "entity_key": interval, "entity_name": "Interval", "min": 1, "max": 86400, "value": 0,
    }  # fmt: skip


async def test_rename(admin: Console) -> None:
    """The name changes, and nothing else of what is shown but the time."""
    device, sn = await add_device(admin)
    name = new_name()
    answer = await admin.ask("PUT", f"/device/{device}", {"name": name})
    console_accepted(answer, data=False)
    detail = await admin.done("GET", f"/device/{device}")
    assert (detail["name"], detail["identifier"]) == (name, sn)


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": 7}, {"name": "n" * 256}, []])
async def test_bad_name(admin: Console, hall: Hall, body: Any) -> None:
    """A name that is missing, blank, overlong or no text is a 400."""
    answer = await admin.ask("PUT", f"/device/{hall.device}", body)
    console_refused(answer, 400, answer.json()["error_code"], "name" if body != [] else "")


@pytest.mark.parametrize("body", [b"{", b"", b"nonsense", b'{"name":"\xff"}'])
async def test_a_body_that_is_no_json(admin: Console, hall: Hall, body: bytes) -> None:
    """`parameter_syntax_error`."""
    for method, path in (("POST", "/device"), ("PUT", f"/device/{hall.device}")):
        answer = await admin.ask(method, path, body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error_code"].startswith("parameter_"), answer.text


async def test_credentials_rotate(admin: Console, api: Api) -> None:
    """A new key is shown once, and the one before it dies."""
    device, sn = await add_device(admin)
    keys = [
        shaped(await admin.done("POST", f"/device/{device}/credentials"), Credentials)
        for _ in range(2)
    ]
    assert {key.sn for key in keys} == {sn}
    body = {"properties": {"counter": 1}}
    answer = await api.http.post(f"/ingest/v1/{sn}/report", json=body, auth=(sn, keys[0].key))
    assert answer.status_code == 401
    await api.report(sn, keys[1].key, body)


async def test_batch_delete(admin: Console, hall: Hall) -> None:
    """Those that are named go; unknown ids, and ids that come twice, do no harm."""
    first, second = (await add_device(admin))[0], (await add_device(admin))[0]
    for listed in ([], [UNKNOWN], [int(first), first, second, UNKNOWN]):
        answer = await admin.ask("POST", "/device/batch-delete", {"device_id_list": listed})
        console_accepted(answer, data=False)
    for device in (first, second):
        await admin.fails(404, "data_no_found", "GET", f"/device/{device}", field="device_id")
    await admin.done("GET", f"/device/{hall.device}")


@pytest.mark.parametrize("listed", [None, "1", {}, ["x"], [0], [[1]], [2**53], [-1]])
async def test_an_invalid_batch_deletion(admin: Console, listed: Any) -> None:
    """A body without a list of ids gets 400 with the field."""
    body = {} if listed is None else {"device_id_list": listed}
    answer = await admin.ask("POST", "/device/batch-delete", body)
    told = console_refused(answer, 400, BAD)
    assert told["detail_message"].startswith("device_id_list")


@pytest.mark.parametrize("path", ["/device/x", "/device/0", f"/device/{2**53}", "/device/1.5"])
async def test_ids_that_are_none(admin: Console, path: str) -> None:
    """400, on every operation that has an id in its path."""
    for method, url, body in (
        ("GET", path, None),
        ("PUT", path, {"name": "N"}),
        ("POST", f"{path}/credentials", {}),
    ):
        answer = await admin.ask(method, url, body)
        assert answer.status_code == 400, (url, answer.text)
        assert answer.json()["detail_message"] == "device_id"


async def test_unknown_devices(admin: Console) -> None:
    """404, on every operation that has an id in its path."""
    path = f"/device/{UNKNOWN}"
    for method, url, body in (
        ("GET", path, None),
        ("PUT", path, {"name": "N"}),
        ("POST", f"{path}/credentials", {}),
    ):
        await admin.fails(404, "data_no_found", method, url, body, "device_id")


EVERYTHING = ("device.view", "device.add", "device.edit", "device.delete")


@pytest.mark.parametrize("kind", ["DEVICE", "INTEGRATION"])
async def test_with_one_grant(hall: Hall, kind: str) -> None:
    """A device is visible with a grant of its own, or of its integration."""
    own, sn = await add_device(hall.admin)
    grant = (kind, own if kind == "DEVICE" else DIRECT_INTEGRATION)
    person = await hall.person(*EVERYTHING, grants=(grant,))
    seen = await found_by(person, identifier=sn)
    assert [entry.id for entry in seen.content] == [own]
    every = (await found_by(person, page_size=99999)).content
    assert (hall.device in {one.id for one in every}) is (kind == "INTEGRATION")
    assert shaped(await person.done("GET", f"/device/{own}"), DeviceDetail).id == own
    console_accepted(await person.ask("PUT", f"/device/{own}", {"name": "Mine"}), data=False)
    shaped(await person.done("POST", f"/device/{own}/credentials", {}), Credentials)
    if kind == "DEVICE":
        await person.fails(404, "data_no_found", "GET", f"/device/{hall.device}")
        await person.fails(403, "forbidden_permission", "POST", "/device", adding(), "integration")
    else:
        console_accepted(await person.ask("POST", "/device", adding()), data=False)
    listed = {"device_id_list": [own]}
    console_accepted(await person.ask("POST", "/device/batch-delete", listed), data=False)
    await hall.admin.fails(404, "data_no_found", "GET", f"/device/{own}")


async def test_without_grants(hall: Hall) -> None:
    """An empty page, 403 for one device; what is named for deletion stays."""
    person = await hall.person(*EVERYTHING)
    page = await found_by(person)
    assert (page.total, page.content) == (0, [])
    await _refused(hall, person, 403, "forbidden_permission")


async def test_a_grant_of_an_entity_shows_no_device(hall: Hall) -> None:
    """The user gets an empty page of devices, and 404 for the device."""
    person = await hall.person(*EVERYTHING, grants=(("ENTITY", hall.entities["led"]),))
    assert (await found_by(person)).total == 0
    await _refused(hall, person, 404, "data_no_found")


async def test_in_another_tenant(hall: Hall, other_admin: Console) -> None:
    """Its super-admin finds nothing of ours."""
    assert (await found_by(other_admin, identifier=hall.sn)).total == 0
    await _refused(hall, other_admin, 404, "data_no_found")


async def _refused(hall: Hall, person: Console, status: int, code: str) -> None:
    """Every operation on the device is refused, and it is as before."""
    path = f"/device/{hall.device}"
    await person.fails(status, code, "GET", path)
    await person.fails(status, code, "PUT", path, {"name": "Taken"})
    await person.fails(status, code, "POST", f"{path}/credentials", {})
    listed = {"device_id_list": [hall.device]}
    console_accepted(await person.ask("POST", "/device/batch-delete", listed), data=False)
    assert (await hall.admin.done("GET", path))["name"] != "Taken"
    await hall.report(counter=2)


async def test_a_deletion_deletes_the_grants(hall: Hall) -> None:
    """Roles lose the grants of a deleted device, custom entity and dashboard."""
    admin, role = hall.admin, await hall.admin.add_role()
    device, _ = await add_device(admin)
    entity = (await add_custom(admin))["id"]
    dashboard = (await admin.done("POST", "/dashboard", {"name": new_name()}))["dashboard_id"]
    held = [("DEVICE", device), ("ENTITY", entity), ("DASHBOARD", dashboard)]
    resources = [{"type": kind, "id": one} for kind, one in held]
    path = f"/user/roles/{role}"
    await admin.does("POST", f"{path}/associate-resource", {"resources": resources})
    assert len(await admin.done("POST", f"{path}/resources", {})) == len(held)
    await admin.ask("POST", "/device/batch-delete", {"device_id_list": [device]})
    await admin.ask("POST", "/entity/delete", {"entity_ids": [entity]})
    await admin.does("DELETE", f"/dashboard/{dashboard}")
    assert await admin.done("POST", f"{path}/resources", {}) == []
