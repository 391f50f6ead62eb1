"""Management API: dashboards, through the gateway."""

from typing import Any

import pytest

from tests.contract.console import Console, new_name
from tests.contract.hall import UNKNOWN, Hall
from tests.contract.shapes import Dashboard, DashboardRef, shaped

pytestmark = pytest.mark.xdist_group("platform")

BAD = "parameter_validation_failed"
LIST = "/dashboard/dashboards"
EVERYTHING = ("dashboard.view", "dashboard.add", "dashboard.edit")


async def make(console: Console, name: str = "") -> str:
    """Add an empty dashboard; its id."""
    made = await console.done("POST", "/dashboard", {"name": name or new_name()})
    return shaped(made, DashboardRef).dashboard_id


async def seen(console: Console) -> dict[str, Dashboard]:
    """The dashboards that somebody sees, by id, the oldest first."""
    found = shaped(await console.done("GET", LIST), list[Dashboard])
    times = [int(entry.created_at) for entry in found]
    assert times == sorted(times)
    return {entry.dashboard_id: entry for entry in found}


async def test_create_and_list(admin: Console) -> None:
    """A new one is empty and has the creator's id; its name is free in the tenant."""
    name = new_name("Ünïcode")
    made = await make(admin, name)
    one = (await seen(admin))[made]
    assert (one.name, one.widgets, one.user_id) == (name, [], admin.id)
    body = {"name": name}
    await admin.fails(409, "dashboard_name_exist", "POST", "/dashboard", body, "name")


async def test_widgets_are_replaced_as_a_whole(admin: Console) -> None:
    """Without an id it is new, with one it changes, left out it goes, unknown ids are nobody's."""
    path = f"/dashboard/{(one := await make(admin))}"
    data = [{"type": "text", "n": at, "config": {"ä": [None, 1.5, True]}} for at in range(3)]
    await admin.does(
        "PUT", path, {"name": new_name(), "widgets": [{"data": each} for each in data]}
    )
    first, second, third = (await seen_raw(admin, one))["widgets"]
    assert [each["data"] for each in (first, second, third)] == data
    changed = [
        {"widget_id": second["widget_id"], "data": {"type": "moved"}},
        {"widget_id": int(first["widget_id"]), "data": first["data"]},
        {"widget_id": UNKNOWN, "data": {"type": "stray"}},
        {"widget_id": "", "tempId": 5, "data": {"type": "new"}},
    ]
    name = new_name()
    await admin.does("PUT", path, {"name": name, "widgets": changed})
    found = await seen_raw(admin, one)
    assert found["name"] == name
    ids = [each["widget_id"] for each in found["widgets"]]
    assert ids[:2] == [second["widget_id"], first["widget_id"]]
    assert [each["data"].get("type") for each in found["widgets"]] == ["moved", "text", "new"]
    assert third["widget_id"] not in ids
    twice = [{"widget_id": ids[0], "data": {}}, {"widget_id": int(ids[0]), "data": {}}]
    body = {"name": name, "widgets": twice}
    await admin.fails(400, BAD, "PUT", path, body, "widgets")
    await admin.fails(400, BAD, "PUT", path, {"name": name, "widgets": None}, "widgets")
    await admin.does("PUT", path, {"name": name})
    assert len((await seen_raw(admin, one))["widgets"]) == 3
    await admin.does("PUT", path, {"name": name, "widgets": []})
    assert (await seen(admin))[one].widgets == []


async def seen_raw(console: Console, one: str) -> Any:
    """A dashboard as it came; what a console wrote may have nulls."""
    body = (await console.ask("GET", LIST)).json()
    return next(each for each in body["data"] if each["dashboard_id"] == one)


async def test_delete(admin: Console) -> None:
    """It is gone, with an empty object or without a body; its name is free again."""
    for body in ({}, None):
        name = new_name()
        path = f"/dashboard/{(one := await make(admin, name))}"
        await admin.does("DELETE", path, body)
        assert one not in await seen(admin)
        await admin.fails(404, "data_no_found", "DELETE", path, body, "dashboard_id")
        await admin.does("DELETE", f"/dashboard/{await make(admin, name)}")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, BAD, "name"),
        ({"name": None}, BAD, "name"),
        ({"name": ["x"]}, BAD, "name"),
        ({"name": "  "}, "parameter_syntax_error", "name"),
        ({"name": "n" * 65}, BAD, "name"),
        ({"name": "a\tb"}, BAD, "name"),
    ],
)
async def test_bad_name(admin: Console, body: Any, code: str, field: str) -> None:
    """A blank, overlong or unreadable name is a 400 that names it, on both ways in."""
    await admin.fails(400, code, "POST", "/dashboard", body, field)
    body = {"widgets": [], **body}
    await admin.fails(400, code, "PUT", f"/dashboard/{await make(admin)}", body, field)


@pytest.mark.parametrize(
    ("widgets", "status", "field"),
    [
        ({}, 400, "widgets"),
        (["x"], 400, "widgets[0]"),
        ([{}], 400, "widgets[0].data"),
        ([{"data": None}], 400, "widgets[0].data"),
        ([{"data": "text"}], 400, "widgets[0].data"),
        ([{"data": {}, "widget_id": "x"}], 400, "widgets[0].widget_id"),
        ([{"data": {}}] * 201, 400, "widgets"),
        ([{"data": {"icon": "x" * 2**21}}] * 3, 413, ""),
    ],
)
async def test_invalid_widgets(admin: Console, widgets: Any, status: int, field: str) -> None:
    """Anything but a list of widgets is rejected, and the dashboard is unchanged."""
    path = f"/dashboard/{(one := await make(admin))}"
    answer = await admin.ask("PUT", path, {"name": new_name(), "widgets": widgets})
    assert answer.status_code == status, answer.text
    if field:
        assert answer.json()["detail_message"] == field
    assert (await seen(admin))[one].widgets == []


async def test_ids_that_are_none(admin: Console) -> None:
    """No number is a 400, no dashboard a 404; both name the id."""
    body = {"name": "N", "widgets": []}
    for method, given in (("PUT", body), ("DELETE", {})):
        for one in ("x", "0", str(2**53)):
            answer = await admin.ask(method, f"/dashboard/{one}", given)
            assert answer.status_code == 400, answer.text
            assert answer.json()["detail_message"] == "dashboard_id"
        path = f"/dashboard/{UNKNOWN}"
        await admin.fails(404, "data_no_found", method, path, given, "dashboard_id")


async def test_a_creator_is_granted_the_dashboard(hall: Hall) -> None:
    """The creator may see, change and delete it without other grants."""
    person = await hall.person(*EVERYTHING)
    one = await make(person)
    assert list(await seen(person)) == [one]
    await person.does("PUT", f"/dashboard/{one}", {"name": new_name(), "widgets": []})
    await person.does("DELETE", f"/dashboard/{one}", {})
    assert await seen(person) == {}


async def test_with_one_grant(hall: Hall) -> None:
    """A granted one is seen and changed; any other is a 404."""
    one, other = await make(hall.admin), await make(hall.admin)
    person = await hall.person(*EVERYTHING, grants=(("DASHBOARD", one),))
    assert list(await seen(person)) == [one]
    await person.does("PUT", f"/dashboard/{one}", {"name": new_name(), "widgets": []})
    await refused(person, other, 404, "data_no_found")
    await person.does("DELETE", f"/dashboard/{one}", {})
    assert one not in await seen(hall.admin)


async def test_without_grants(hall: Hall) -> None:
    """An empty list, and 403 for one dashboard; 404 when something else is granted."""
    one = await make(hall.admin)
    for grants, status, code in (
        ((), 403, "forbidden_permission"),
        ((("DEVICE", hall.device),), 404, "data_no_found"),
    ):
        person = await hall.person(*EVERYTHING, grants=grants)
        assert await seen(person) == {}
        await refused(person, one, status, code)


async def test_in_another_tenant(hall: Hall, other_admin: Console) -> None:
    """Its super-admin finds nothing of ours; a name is taken in one tenant only."""
    name = new_name()
    one = await make(hall.admin, name)
    assert one not in await seen(other_admin)
    await refused(other_admin, one, 404, "data_no_found")
    await make(other_admin, name)


async def refused(person: Console, one: str, status: int, code: str) -> None:
    """A dashboard can be neither changed nor deleted."""
    path, body = f"/dashboard/{one}", {"name": new_name(), "widgets": []}
    await person.fails(status, code, "PUT", path, body)
    await person.fails(status, code, "DELETE", path, {})
