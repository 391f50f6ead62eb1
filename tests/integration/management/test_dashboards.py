"""Dashboards: created, arranged, seen by those who may, and gone with their grants."""

import asyncio

import pytest

from libs.common.contracts.access import ResourceRef, ResourceType
from libs.common.contracts.names import DescribeDashboards, DescribedDashboards
from libs.common.identity.functions import Function
from services.management.dashboards.schemas import MAX_DASHBOARD_UPDATE_WIDGETS, MAX_WIDGETS_BYTES
from tests.integration.management.conftest import Management

EVERYTHING = (Function.DASHBOARD_ADD, Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW)
NAMED = {"name": "x", "widgets": []}
CARD = {"type": "dataCard", "config": {"a.b": 1, "$ref": [None, 1.5]}, "pos": {"x": 0}}


async def test_widget_data_is_returned_unchanged(management: Management):
    """A widget's data is opaque, also with dots and dollars in its keys; its id is a string."""
    admin = management.admin()
    ref = await admin.done("POST", "/dashboard", {"name": " Hall "})
    body = {"name": "Hall", "widgets": [{"data": CARD, "tempId": 1}]}
    assert await admin.done("PUT", f"/dashboard/{ref['dashboard_id']}", body) == {}
    (found,) = await admin.done("GET", "/dashboard/dashboards")
    (widget,) = found["widgets"]
    assert found["name"] == "Hall"
    assert found["dashboard_id"] == ref["dashboard_id"]
    assert found["user_id"] == "1"
    assert found["created_at"].isdecimal()
    assert widget["data"] == CARD
    assert widget["widget_id"].isdecimal()


async def test_an_update_is_the_whole_set_of_widgets(management: Management):
    """Known ids are replaced, those left out are deleted, unknown ones are passed over.

    Where no widgets come, they stay as they are.
    """
    admin = management.admin()
    path = f"/dashboard/{(await admin.done('POST', '/dashboard', {'name': 'A'}))['dashboard_id']}"
    await admin.done(
        "PUT", path, {"name": "A", "widgets": [{"data": {"n": 1}}, {"data": {"n": 2}}]}
    )
    (found,) = await admin.done("GET", "/dashboard/dashboards")
    kept = found["widgets"][1]["widget_id"]
    changed = [
        {"widget_id": kept, "data": {"n": 22}},
        {"widget_id": "999", "data": {"n": 0}},
        {"widget_id": "", "data": {"n": 3}},
    ]
    await admin.done("PUT", path, {"name": "B", "widgets": changed})
    (found,) = await admin.done("GET", "/dashboard/dashboards")
    assert found["name"] == "B"
    assert [widget["data"]["n"] for widget in found["widgets"]] == [22, 3]
    assert found["widgets"][0]["widget_id"] == kept
    await admin.done("PUT", path, {"name": "B"})
    (found,) = await admin.done("GET", "/dashboard/dashboards")
    assert len(found["widgets"]) == 2
    await admin.refused(400, "PUT", path, {"name": "B", "widgets": None}, field="widgets")
    await admin.done("PUT", path, {"name": "B", "widgets": []})
    (found,) = await admin.done("GET", "/dashboard/dashboards")
    assert found["widgets"] == []


async def test_a_creator_sees_the_dashboard_and_others_do_not(management: Management):
    """Creating shares with the creator's roles; who has no grant sees an empty list."""
    maker, other = management.user(7, *EVERYTHING), management.user(8, *EVERYTHING)
    ref = await maker.done("POST", "/dashboard", {"name": "Mine"})
    assert management.grants.held(7) == {ResourceRef(ref["dashboard_id"], ResourceType.DASHBOARD)}
    assert len(await maker.done("GET", "/dashboard/dashboards")) == 1
    assert await other.done("GET", "/dashboard/dashboards") == []
    path = f"/dashboard/{ref['dashboard_id']}"
    await other.refused(403, "PUT", path, NAMED, code="forbidden_permission")
    management.grants.give(8, ResourceType.DASHBOARD, 5)
    await other.refused(404, "PUT", path, NAMED, code="data_no_found", field="dashboard_id")
    await other.refused(404, "DELETE", path, {})


async def test_deleting_takes_the_grants_along(management: Management):
    """The console's DELETE carries an empty object; afterwards there is no such dashboard."""
    maker = management.user(7, *EVERYTHING)
    ref = await maker.done("POST", "/dashboard", {"name": "Mine"})
    path = f"/dashboard/{ref['dashboard_id']}"
    await maker.done("DELETE", path, {})
    assert management.grants.held(7) == set()
    await management.admin().refused(404, "DELETE", path, {}, code="data_no_found")


async def test_names_are_unique_within_a_tenant(management: Management):
    """The second one of a name is refused, also of two at once; another tenant may have it."""
    admin = management.admin()
    answers = await asyncio.gather(
        *(admin.ask("POST", "/dashboard", {"name": "Twice"}) for _ in range(2))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = await admin.refused(
        409, "POST", "/dashboard", {"name": "Twice"}, code="dashboard_name_exist", field="name"
    )
    assert "Twice" in refused["error_message"]
    other = management.admin("other")
    await other.done("POST", "/dashboard", {"name": "Twice"})
    assert len(await other.done("GET", "/dashboard/dashboards")) == 1
    ref = await admin.done("POST", "/dashboard", {"name": "Third"})
    body = NAMED | {"name": "Twice"}
    await admin.refused(409, "PUT", f"/dashboard/{ref['dashboard_id']}", body, field="name")


async def test_a_dashboard_of_another_tenant_is_not_there(management: Management):
    """Even a super-admin sees, changes and deletes only what is of the own tenant."""
    ref = await management.admin().done("POST", "/dashboard", {"name": "Ours"})
    stranger = management.admin("other")
    path = f"/dashboard/{ref['dashboard_id']}"
    assert await stranger.done("GET", "/dashboard/dashboards") == []
    await stranger.refused(404, "PUT", path, NAMED)
    await stranger.refused(404, "DELETE", path, {})


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"name": "  "}, "name", "parameter_syntax_error"),
        ({"name": "x" * 256}, "name", "parameter_validation_failed"),
        ({"name": "a\u0000b"}, "name", "parameter_validation_failed"),
        ({"name": 5}, "name", "parameter_validation_failed"),
        ({"name": "x" * 65}, "name", "parameter_validation_failed"),
        ({}, "name", "parameter_validation_failed"),
        ({"name": "A", "widgets": {}}, "widgets", "parameter_validation_failed"),
        ({"name": "A", "widgets": [{}]}, "widgets[0].data", "parameter_validation_failed"),
        (
            {"name": "A", "widgets": [{"data": {}, "widget_id": "x"}]},
            "widgets[0].widget_id",
            "parameter_validation_failed",
        ),
        (
            {"name": "A", "widgets": [{"data": {}}] * (MAX_DASHBOARD_UPDATE_WIDGETS + 1)},
            "widgets",
            "parameter_validation_failed",
        ),
    ],
)
async def test_bad_input_is_named(management: Management, body, field, code):
    """A wrong body is a 400 that names the field and changes nothing."""
    admin = management.admin()
    ref = await admin.done("POST", "/dashboard", {"name": "A"})
    path = f"/dashboard/{ref['dashboard_id']}"
    await admin.refused(400, "PUT", path, NAMED | body if body else body, field=field, code=code)


async def test_a_dashboard_that_is_too_large_is_refused(management: Management):
    """Its widgets have a bound together: 413, and what was there stays."""
    admin = management.admin()
    ref = await admin.done("POST", "/dashboard", {"name": "A"})
    body = {"name": "A", "widgets": [{"data": {"icon": "x" * MAX_WIDGETS_BYTES}}]}
    await admin.refused(413, "PUT", f"/dashboard/{ref['dashboard_id']}", body, field="widgets")
    assert (await admin.done("GET", "/dashboard/dashboards"))[0]["widgets"] == []


@pytest.mark.parametrize("bad", ["x", "0", "-1", "1.5", "9007199254740992"])
async def test_an_invalid_id_is_a_400(management: Management, bad):
    """A text that is no number is an invalid id, not an unknown path."""
    await management.admin().refused(400, "DELETE", f"/dashboard/{bad}", {}, field="dashboard_id")


async def test_auth_gets_names_of_dashboards(management: Management):
    """Role lists request the dashboards of a tenant by id or keyword."""
    admin = management.admin()
    await admin.done("POST", "/dashboard", {"name": "Hall"})
    second = await admin.done("POST", "/dashboard", {"name": "Attic"})
    await management.admin("other").done("POST", "/dashboard", {"name": "Hall"})

    async def names(**wanted: object) -> list[str]:
        found = await management.rpc(
            "describe_dashboards", DescribeDashboards("default", **wanted), DescribedDashboards
        )
        return [dashboard.name for dashboard in found.dashboards]

    assert await names() == ["Attic", "Hall"]
    assert await names(keyword="hal") == ["Hall"]
    assert await names(ids=[int(second["dashboard_id"]), 5]) == ["Attic"]
