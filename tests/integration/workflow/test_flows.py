"""Flows: saved, found, changed, enabled, deleted, by whom they are granted to."""

import asyncio
import json

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from tests.integration.workflow.conftest import AUTHOR
from tests.integration.workflow.designs import (
    HOT,
    alarm,
    choice,
    design,
    edge,
    node,
    trigger,
    when,
)

FLOWS = "/workflow/flows"


async def save(user, **fields):
    """Save a design; the answer."""
    body = {"name": "Alarm", "design_data": alarm(), **fields}
    return await user.done("POST", f"{FLOWS}/design", body)


async def test_a_new_flow_has_version_1_and_both_spellings_of_its_id(workflow):
    """The answer of a save has `id`, `flow_id` and `version`."""
    saved = await save(workflow.admin())

    assert saved == {"id": saved["flow_id"], "flow_id": saved["id"], "version": 1}
    assert saved["id"].isdecimal()


async def test_a_version_changes_with_the_design_alone(workflow):
    """Name and remark leave the version; another design makes the next one, the old is kept."""
    user = workflow.admin()
    saved = await save(user)
    renamed = await save(user, id=saved["id"], version=1, name="Other", remark="r")
    other = design([trigger()])
    changed = await save(user, id=saved["id"], version=1, design_data=other)

    assert (renamed["version"], changed["version"]) == (1, 2)
    newest = await user.done("GET", f"{FLOWS}/{saved['id']}/design?version=")
    assert other == newest["design_data"]
    assert tuple(newest[name] for name in ("version", "name", "remark", "enabled")) == (
        2,
        "Alarm",
        "r",
        False,
    )
    old = await user.done("GET", f"{FLOWS}/{saved['id']}/design?version=1")
    assert (alarm(), 2) == (old["design_data"], old["version"])


async def test_saving_an_old_version_is_rejected(workflow):
    """A user who has not seen the newest version cannot overwrite it."""
    user = workflow.admin()
    saved = await save(user)
    await save(user, id=saved["id"], version=1, design_data=design([trigger()]))

    refused = await user.refused(
        409,
        "POST",
        f"{FLOWS}/design",
        {"id": saved["id"], "version": 1, "name": "Mine", "design_data": alarm()},
        field="version",
        code="parameter_validation_failed",
    )
    assert refused["error_message"] == "version 1 is outdated; the latest is 2"


async def test_versions_that_are_not_there_are_named(workflow):
    """A future or invalid version is a client error."""
    user = workflow.admin()
    path = f"{FLOWS}/{(await save(user))['id']}/design?version="

    for version in ("2", "x", "-1"):
        await user.refused(400, "GET", path + version, field="version")
    await user.refused(404, "GET", path + "0", field="version")


async def test_the_versions_that_are_kept_are_listed(workflow):
    """The newest first, each with when it was saved; a new name makes none."""
    user = workflow.admin()
    flow = (await save(user))["id"]
    for version, remark in ((1, "second"), (2, "third")):
        other = design([trigger(), node(remark, "output")])
        await save(user, id=flow, version=version, design_data=other)
    await user.done("PUT", f"{FLOWS}/{flow}", {"name": "n", "remark": ""})

    found = await user.done("GET", f"{FLOWS}/{flow}/versions")
    assert [entry["version"] for entry in found] == [3, 2, 1]
    times = [entry["saved_at"] for entry in found]
    assert sorted(times, reverse=True) == times
    (listed,) = await user.done("POST", f"{FLOWS}/search", {})
    assert listed["created_at"] == times[-1]


async def test_a_draft_is_saved_and_refused_when_it_is_to_run(workflow):
    """Unknown components are kept; enabling says which node is at fault and why."""
    user = workflow.admin()
    draft = design([trigger(), node("odd", "teleport")], edge("start", "odd"))
    saved = await save(user, design_data=draft)

    refused = await user.refused(400, "GET", f"{FLOWS}/{saved['id']}/enable", field="design_data")
    assert refused["data"] == [
        {
            "node_id": "odd",
            "field": "componentName",
            "reason": "node type teleport does not exist; replace or remove the node",
        }
    ]
    await user.refused(
        400, "POST", f"{FLOWS}/design", {"name": "n", "enabled": True, "design_data": draft}
    )
    assert [saved["id"]] == [one["id"] for one in await user.done("POST", f"{FLOWS}/search", {})]


async def test_a_constant_that_its_property_does_not_take_is_refused(workflow):
    """Validation and enabling reject it; unknown entities are left to the run."""
    user = workflow.admin()
    constants = {HOT: "#{properties.start['hot']}", f"{HOT}2": "much"}
    nodes = [trigger(("hot", "LONG")), node("set", "entityAssigner", exchangePayload=constants)]
    draft = design(nodes, edge("start", "set"))
    saved = await save(user, design_data=draft)
    workflow.device.refuses = f"{HOT}2 must be a whole number"
    fault = {
        "node_id": "set",
        "field": "parameters.exchangePayload",
        "reason": f"exchange: {HOT}2 must be a whole number",
    }
    answer = await user.ask("POST", f"{FLOWS}/design/validate", {"design_data": draft})
    assert answer.json()["detail"] == [fault]
    refused = await user.refused(400, "GET", f"{FLOWS}/{saved['id']}/enable", field="design_data")
    assert refused["data"] == [fault]
    assert workflow.device.updates == []

    del constants[f"{HOT}2"]
    await save(user, design_data=design(nodes, edge("start", "set")), enabled=True)


async def test_an_empty_condition_is_refused(workflow):
    """As it is checked and when it is to run, at its node; a draft may have one."""
    user = workflow.admin()
    draft = design([trigger(), choice(when("yes", "", "EQ", ""))], edge("start", "fork"))
    saved = await save(user, design_data=draft)
    fault = {
        "node_id": "fork",
        "field": "parameters.choice.when[0].conditions[0].expressionValue.key",
        "reason": "must not be empty; choose a value to compare",
    }
    answer = await user.ask("POST", f"{FLOWS}/design/validate", {"design_data": draft})
    assert answer.json()["detail"] == [fault]
    refused = await user.refused(400, "GET", f"{FLOWS}/{saved['id']}/enable", field="design_data")
    assert refused["data"] == [fault]


async def test_a_flow_is_enabled_and_disabled_as_often_as_one_likes(workflow):
    """Both are repeatable, and a list can be asked for either."""
    user = workflow.admin()
    flow = (await save(user))["id"]
    for what, enabled in (("enable", True), ("enable", True), ("disable", False)):
        await user.done("GET", f"{FLOWS}/{flow}/{what}")
        found = await user.done("POST", f"{FLOWS}/search", {"enabled": enabled})
        assert [(flow, enabled)] == [(entry["id"], entry["enabled"]) for entry in found]


async def test_changes_at_the_same_time_are_all_made(workflow):
    """Changes of name and state do not conflict with each other."""
    user = workflow.admin()
    flow = (await save(user))["id"]

    await asyncio.gather(
        *(user.done("GET", f"{FLOWS}/{flow}/enable") for _ in range(3)),
        *(user.done("GET", f"{FLOWS}/{flow}/disable") for _ in range(3)),
        *(user.done("PUT", f"{FLOWS}/{flow}", {"name": f"n{n}", "remark": ""}) for n in range(3)),
        user.done("POST", f"{FLOWS}/design", {"id": flow, "version": 1, "name": "saved"}),
    )

    (found,) = await user.done("POST", f"{FLOWS}/search", {})
    assert found["name"] in {"n0", "n1", "n2", "saved"}


async def test_a_save_names_a_flow_and_its_version_or_neither(workflow):
    """One without the other is refused, and makes no flow."""
    user = workflow.admin()
    flow = (await save(user))["id"]
    for body, field in (
        ({"version": 1}, "id"),
        ({"version": 1, "id": ""}, "id"),
        ({"version": 0}, "id"),
        ({"id": flow}, "version"),
        ({"id": flow, "version": None}, "version"),
    ):
        refusal = await user.refused(
            400, "POST", f"{FLOWS}/design", {"name": "n", **body}, field=field
        )
        other = {"id": "version", "version": "id"}[field]
        wanted = f"is required with {other}; omit both for a new flow"
        assert refusal["error_message"] == wanted
    assert [flow] == [one["id"] for one in await user.done("POST", f"{FLOWS}/search", {})]


async def test_a_design_is_opened_with_all_that_an_editor_needs(workflow):
    """Missing positions, types, `nodes` and `edges` are added."""
    user = workflow.admin()
    bare = json.dumps(
        {
            "nodes": [
                {"id": "a", "componentName": "trigger"},
                {"id": "b", "componentName": "choice"},
                {"id": "c", "componentName": "choice"},
            ],
            "edges": [{"source": "a", "target": "b"}, {"source": "a", "target": "c"}],
        }
    )
    opened = {}
    for text in (bare, "", "{}"):
        flow = (await save(user, design_data=text))["id"]
        shown = await user.done("GET", f"{FLOWS}/{flow}/design")
        opened[text] = json.loads(shown["design_data"])

    assert opened[""] == opened["{}"] == {"nodes": [], "edges": []}
    assert [
        (one["type"], one["position"]["x"], one["position"]["y"]) for one in opened[bare]["nodes"]
    ] == [("trigger", 0, 0), ("ifelse", 320, 0), ("ifelse", 320, 160)]


async def test_an_invalid_design_is_not_saved(workflow):
    """An invalid or too large design is an error with its field."""
    user = workflow.admin()
    for text in ("x", "[]", '{"nodes": 1}', '{"nodes": [1]}', "[" * 100_000):
        await user.refused(
            400, "POST", f"{FLOWS}/design", {"name": "n", "design_data": text}, field="design_data"
        )
    await user.refused(
        413, "POST", f"{FLOWS}/design", {"name": "n", "design_data": " " * 5_000_000}
    )


async def test_lists_have_pages_names_and_an_order(workflow):
    """A search finds parts of names; `sorts` orders; a page says how many there are."""
    user = workflow.admin()
    for name in ("Beta", "alpha", "Gamma"):
        await save(user, name=name)
    body = {"name": "a", "page_size": 2, "sorts": [{"property": "name", "direction": "ASC"}]}
    page = await user.done("POST", f"{FLOWS}/search", body)

    assert (page["total"], page["page_size"], page["page_number"]) == (3, 2, 1)
    assert [entry["name"] for entry in page["content"]] == ["Beta", "Gamma"]
    (first, _) = page["content"]
    assert first["user_nickname"] == "Nick 1"
    assert isinstance(first["created_at"], int)
    assert isinstance(first["updated_at"], int)


async def test_basic_info_is_overwritten(workflow):
    """Name and remark may be empty; a missing field is an error without changes."""
    user = workflow.admin()
    flow = (await save(user, remark="old"))["id"]
    for body, field in (({"name": "New"}, "remark"), ({"remark": ""}, "name")):
        await user.refused(400, "PUT", f"{FLOWS}/{flow}", body, field=field)
    await user.refused(
        400, "PUT", f"{FLOWS}/{flow}", {"name": "New", "remark": None}, field="remark"
    )
    assert (await user.done("GET", f"{FLOWS}/{flow}/design"))["remark"] == "old"
    await user.done("PUT", f"{FLOWS}/{flow}", {"name": "New", "remark": ""})

    shown = await user.done("GET", f"{FLOWS}/{flow}/design")
    assert (shown["name"], shown["remark"], shown["version"]) == ("New", "", 1)
    await user.refused(400, "PUT", f"{FLOWS}/{flow}", {"name": "  ", "remark": ""}, field="name")


async def test_deleted_flows_are_gone_with_their_grants(workflow):
    """Unknown ids are passed over."""
    user = workflow.user(7, *AUTHOR, Function.WORKFLOW_DELETE)
    flow = (await save(user))["id"]
    kept = (await save(user))["id"]
    await user.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow, "999"]})

    assert {kept} == {one.id for one in workflow.grants.held(7)}
    await user.refused(404, "GET", f"{FLOWS}/{flow}/design", field="id")
    assert [kept] == [one["id"] for one in await user.done("POST", f"{FLOWS}/search", {})]


async def test_users_see_granted_flows(workflow):
    """A flow is shared with its creator's roles; others, and other tenants, do not see it."""
    author, other = workflow.user(7, *AUTHOR), workflow.user(8, *AUTHOR)
    flow = (await save(author))["id"]

    await other.refused(403, "GET", f"{FLOWS}/{flow}/design", code="forbidden_permission")
    workflow.grants.give(8, ResourceType.DASHBOARD, 5)
    await other.refused(404, "GET", f"{FLOWS}/{flow}/design", code="data_no_found")
    assert await other.done("POST", f"{FLOWS}/search", {}) == []
    workflow.grants.give(8, ResourceType.WORKFLOW, flow)
    assert flow == (await other.done("GET", f"{FLOWS}/{flow}/design"))["id"]
    await workflow.admin("elsewhere").refused(404, "GET", f"{FLOWS}/{flow}/design")


async def test_each_operation_needs_its_function(workflow):
    """Viewers cannot save, and editors cannot create."""
    flow = (await save(workflow.admin()))["id"]
    viewer, editor = (
        workflow.user(7, Function.WORKFLOW_VIEW),
        workflow.user(8, Function.WORKFLOW_EDIT),
    )
    body = {"name": "n", "design_data": "{}"}

    await viewer.refused(403, "POST", f"{FLOWS}/design", body)
    await editor.refused(403, "POST", f"{FLOWS}/design", body)
    await editor.refused(403, "POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow]})
    await viewer.refused(403, "GET", f"{FLOWS}/{flow}/enable")


async def test_a_flow_runs_only_with_entities_that_its_author_sees(workflow):
    """Enabling names the entity that the user does not see; a grant of its device helps."""
    workflow.device.has(HOT, thing_id=55)
    user = workflow.user(7, *AUTHOR)
    flow = (await save(user))["id"]

    refused = await user.refused(400, "GET", f"{FLOWS}/{flow}/enable", field="design_data")
    assert refused["data"][0]["node_id"] == "set"
    assert HOT in refused["data"][0]["reason"]
    workflow.grants.give(7, ResourceType.DEVICE, 55)
    await user.done("GET", f"{FLOWS}/{flow}/enable")


async def test_renaming_a_flow_needs_no_grants_of_its_entities(workflow):
    """They are needed to change the design and to enable the flow."""
    workflow.device.has(HOT, thing_id=55)
    flow = (await save(workflow.admin(), enabled=True))["id"]
    user = workflow.user(7, *AUTHOR)
    workflow.grants.give(7, ResourceType.WORKFLOW, flow)

    await user.done("PUT", f"{FLOWS}/{flow}", {"name": "New", "remark": ""})
    await save(user, id=flow, version=1)
    changed = {"name": "n", "id": flow, "version": 1, "design_data": f"{alarm()} "}
    await user.refused(400, "POST", f"{FLOWS}/design", changed, field="design_data")
    await user.done("GET", f"{FLOWS}/{flow}/disable")
    await user.refused(400, "GET", f"{FLOWS}/{flow}/enable", field="design_data")
