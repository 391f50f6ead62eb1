"""The management API's workflows, operation by operation, through the gateway."""

import asyncio
import json
from typing import Any

import pytest

from libs.common.identity.functions import Function
from tests.contract.browser import Browser
from tests.contract.console import Console, Json, console_accepted, new_name
from tests.integration.workflow.designs import design, edge, node, trigger

pytestmark = pytest.mark.xdist_group("contract")

FLOWS = "/workflow/flows"
DOUBLED = design(
    [
        trigger(("x", "LONG")),
        node("end", "output", outputVariables={"again": "#{properties.start['x']}"}),
    ],
    edge("start", "end"),
)


async def save(console: Console, **fields: Any) -> Json:
    """Save a design; the answer."""
    body = {"name": new_name("flow"), "design_data": DOUBLED, **fields}
    saved: Json = await console.done("POST", f"{FLOWS}/design", body)
    return saved


async def accepted(console: Console, method: str, path: str, body: Any = None) -> None:
    """A call whose success has no `data`."""
    console_accepted(await console.ask(method, path, body), data=False)


async def found(console: Console, **body: Any) -> list[Json]:
    """Flows by search."""
    flows: list[Json] = await console.done("POST", f"{FLOWS}/search", body)
    return flows


async def test_save_and_search(admin: Console) -> None:
    """A save answers both spellings of the id; a list has the fields of the specification."""
    name = new_name("flow")
    saved = await save(admin, name=name, remark="for a test")

    assert saved == {"id": saved["id"], "flow_id": saved["id"], "version": 1}
    (row,) = await found(admin, name=name)
    times = {key: row.pop(key) for key in ("created_at", "updated_at")}
    assert all(isinstance(time, int) and time > 1_600_000_000_000 for time in times.values())
    nickname = (await admin.done("GET", "/user"))["nickname"]
    assert row == {
        "id": saved["id"],
        "name": name,
        "remark": "for a test",
        "enabled": False,
        "user_nickname": nickname,
    }


async def test_pages(admin: Console) -> None:
    """A bare list, or a page when one is asked for; `sorts` orders either."""
    prefix = new_name("paged")
    for number in (2, 1, 3):
        await save(admin, name=f"{prefix} {number}")
    by_name = {"name": prefix, "sorts": [{"direction": "DESC", "property": "name"}]}

    assert [row["name"][-1] for row in await found(admin, **by_name)] == ["3", "2", "1"]
    page = await admin.done(
        "POST", f"{FLOWS}/search", {**by_name, "page_size": 2, "page_number": 2}
    )
    assert (page["total"], page["page_size"], page["page_number"]) == (3, 2, 2)
    assert [row["name"][-1] for row in page["content"]] == ["1"]
    await admin.fails(
        400, "parameter_validation_failed", "POST", f"{FLOWS}/search", {"page_number": 0}
    )


async def test_basic_info(admin: Console) -> None:
    """Name and remark are overwritten; the version stays."""
    saved = await save(admin, remark="old")
    name = new_name("renamed")
    code = "parameter_validation_failed"
    await admin.fails(400, code, "PUT", f"{FLOWS}/{saved['id']}", {"name": name}, "remark")
    await accepted(admin, "PUT", f"{FLOWS}/{saved['id']}", {"name": name, "remark": "new"})

    shown = await admin.done("GET", f"{FLOWS}/{saved['id']}/design")
    assert shown == {
        "id": saved["id"],
        "name": name,
        "remark": "new",
        "enabled": False,
        "version": 1,
        "design_data": DOUBLED,
    }


async def test_versions(admin: Console) -> None:
    """Old versions are served, of the future there are none, and a late save is refused."""
    saved = await save(admin)
    again = await save(admin, id=saved["id"], version=1, design_data=design([trigger()]))

    assert again["version"] == 2
    old = await admin.done("GET", f"{FLOWS}/{saved['id']}/design?version=1")
    assert (old["design_data"], old["version"]) == (DOUBLED, 2)
    code = "parameter_validation_failed"
    late = {"name": "n", "id": saved["id"], "version": 1, "design_data": "{}"}
    await admin.fails(409, code, "POST", f"{FLOWS}/design", late, "version")
    for half, field in (({"id": saved["id"]}, "version"), ({"version": 1}, "id")):
        await admin.fails(400, code, "POST", f"{FLOWS}/design", {"name": "n", **half}, field)
    await admin.fails(400, code, "GET", f"{FLOWS}/{saved['id']}/design?version=3", None, "version")


async def test_enable_and_disable(admin: Console) -> None:
    """Both are repeatable; what cannot run is refused with the reasons."""
    saved = await save(admin)
    for what, enabled in (("enable", True), ("enable", True), ("disable", False)):
        await accepted(admin, "GET", f"{FLOWS}/{saved['id']}/{what}")
        shown = await admin.done("GET", f"{FLOWS}/{saved['id']}/design?version=")
        assert shown["enabled"] is enabled
    draft = await save(admin, design_data=design([node("odd", "teleport")]))
    body = await admin.fails(
        400,
        "parameter_validation_failed",
        "GET",
        f"{FLOWS}/{draft['id']}/enable",
        None,
        "design_data",
    )
    assert body["data"][0]["node_id"] == "odd"
    await admin.fails(404, "data_no_found", "GET", f"{FLOWS}/999999999/enable")
    await admin.fails(400, "parameter_syntax_error", "GET", f"{FLOWS}/x/enable")


async def test_batch_delete(admin: Console) -> None:
    """Designs go with their flow; unknown ids are passed over."""
    saved = await save(admin)
    await accepted(
        admin, "POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [saved["id"], "999999999"]}
    )
    await admin.fails(404, "data_no_found", "GET", f"{FLOWS}/{saved['id']}/design")
    await admin.fails(400, "parameter_validation_failed", "POST", f"{FLOWS}/batch-delete", {})


async def test_validate(admin: Console) -> None:
    """`data` is true or false; when it is false `detail` has the reasons."""
    path = f"{FLOWS}/design/validate"
    assert await admin.done("POST", path, {"design_data": DOUBLED}) is True
    answer = await admin.ask("POST", path, {"design_data": "{}"})
    assert answer.status_code == 200
    assert answer.json()["data"] is False
    assert answer.json()["detail"] == [
        {"field": "nodes", "reason": "must not be empty; add an entry node"}
    ]


@pytest.mark.parametrize("path", ["/test", "/design/test"])
async def test_flow_test(admin: Console, path: str) -> None:
    """Both routes answer status, times and the trace of each node."""
    body = {"design_data": DOUBLED, "input": {"x": 21}}
    tested = await admin.done("POST", FLOWS + path, body)

    assert {"status", "start_time", "time_cost", "trace_infos"} == set(tested)
    assert tested["status"] == "SUCCESS"
    entry, end = tested["trace_infos"]
    assert set(entry) == {
        "message_id",
        "node_id",
        "node_label",
        "node_name",
        "status",
        "start_time",
        "time_cost",
        "output",
    }
    assert set(end) == set(entry) | {"input", "parent_trace_id"}
    assert (end["input"], end["output"]) == ('{"x":21}', '{"again":21}')
    saved = await save(admin)
    tested = await admin.done("POST", FLOWS + path, {"flow_id": saved["id"], "input": {"x": 2}})
    assert (tested["flow_id"], tested["status"]) == (saved["id"], "SUCCESS")
    tested = await admin.done("POST", FLOWS + path, {"design_data": design([node("a", "b")])})
    assert (tested["status"], tested["trace_infos"][0]["status"]) == ("ERROR", "ERROR")


async def test_node_test(admin: Console) -> None:
    """One trace item."""
    config = node("end", "output", outputVariables={"y": "#{properties.any['x']} °C"})
    body = {"node_config": json.dumps(config), "input": {"x": 3}}
    traced = await admin.done("POST", f"{FLOWS}/node/test", body)

    assert (traced["node_id"], traced["status"], traced["output"]) == (
        "end",
        "SUCCESS",
        '{"y":"3 °C"}',
    )


async def test_components(admin: Console) -> None:
    """Every category is an array of name, title and data, which is JSON."""
    groups = await admin.done("GET", "/workflow/components")

    assert set(groups) == {"entry", "control", "action", "external"}
    names = [row["name"] for rows in groups.values() for row in rows]
    assert {"trigger", "choice", "entityAssigner", "entitySelector", "serviceInvocation"} <= {
        *names
    }
    for rows in groups.values():
        for row in rows:
            assert set(row) == {"name", "title", "data"}
            data = json.loads(row["data"])
            assert data["component"]["name"] == row["name"]
            assert await admin.done("GET", f"/workflow/components/{row['name']}") == row["data"]
    await admin.fails(404, "data_no_found", "GET", "/workflow/components/teleport", None, "name")
    languages = await admin.done("GET", "/workflow/components/languages")
    assert {"code", "expression"} == set(languages)


async def test_the_existing_console_v1_1_gets_only_node_types_that_it_can_create(
    admin: Console,
) -> None:
    """It never requests live updates over MQTT, as later consoles do on each page."""
    person = await admin.person(Function.WORKFLOW_VIEW)
    headers = {"Accept": "application/json, text/plain, */*"}

    async def starts() -> set[str]:
        answer = await person.ask("GET", "/workflow/components", headers=headers)
        return {one["name"] for one in console_accepted(answer)["entry"]}

    known = await starts()
    await person.done("GET", "/mqtt/web/credentials")
    assert known == {"trigger", "simpleTimer", "eventListener", "simpleMqtt"}
    assert await starts() == known | {"httpIn"}
    await person.close()


async def test_a_flow_that_is_called_runs_and_is_logged(admin: Console) -> None:
    """The service of its trigger answers; the log has the run, its version and its trace."""
    saved = await save(admin, enabled=True)
    key = f"system.integration.{saved['id']}"
    answered = await admin.done("POST", "/entity/service/call", {"exchange": {f"{key}.x": 4}})

    assert answered == {"again": 4}
    logs = f"{FLOWS}/{saved['id']}/logs/search"
    (row,) = await admin.done("POST", logs, {})
    assert set(row) == {"id", "start_time", "time_cost", "status", "version"}
    assert (row["status"], row["version"]) == ("SUCCESS", 1)
    detail = await admin.done("GET", f"{FLOWS}/logs/{row['id']}")
    assert [one["node_id"] for one in detail["trace_info"]] == ["start", "end"]
    assert {key: detail[key] for key in row} == row
    assert await admin.done("POST", logs, {"status": "ERROR"}) == []
    page = await admin.done("POST", logs, {"page_number": 1, "page_size": 30})
    assert (page["total"], page["content"]) == (1, [row])
    await admin.fails(404, "data_no_found", "GET", f"{FLOWS}/logs/999999999", None, "log_id")


async def test_functions_and_grants(admin: Console, other_admin: Console) -> None:
    """Each verb needs its function; a flow is seen by its creator's roles, by no other tenant."""
    author = await admin.person(Function.WORKFLOW_ADD, Function.WORKFLOW_VIEW)
    viewer = await admin.person(Function.WORKFLOW_VIEW)
    nobody = await admin.person(Function.DASHBOARD_VIEW)
    denied = "forbidden_permission"
    try:
        saved = await save(author)
        path = f"{FLOWS}/{saved['id']}"
        assert [row["id"] for row in await found(author)] == [saved["id"]]
        assert await found(viewer) == []
        await viewer.fails(403, denied, "GET", f"{path}/design")
        await viewer.fails(403, denied, "POST", f"{FLOWS}/design", {"name": "n"})
        await author.fails(403, denied, "GET", f"{path}/enable")
        await author.fails(403, denied, "PUT", path, {"name": "n", "remark": ""})
        await nobody.fails(403, denied, "POST", f"{FLOWS}/search", {})
        await nobody.fails(403, denied, "GET", "/workflow/components")
        await other_admin.fails(404, "data_no_found", "GET", f"{path}/design")
        anonymous = await admin.ask("GET", f"{path}/design", token="")
        assert anonymous.status_code == 401
    finally:
        await asyncio.gather(author.close(), viewer.close(), nobody.close())


async def test_the_console_opens_and_saves_a_flow(browser: Browser) -> None:
    """Letter by letter what the list and the editor of an existing console send."""
    name = new_name("Workflow")
    body = {"name": name, "enabled": True, "design_data": DOUBLED, "remark": ""}
    saved = await browser.post(f"{FLOWS}/design", json.dumps(body))
    listed = await browser.post(f"{FLOWS}/search", '{"name":"","page_size":10,"page_number":1}')
    assert saved["id"] in [row["id"] for row in listed["content"]]
    shown = await browser.get(f"{FLOWS}/{saved['id']}/design?version=")
    opened = json.loads(shown.pop("design_data"))
    assert all(one["position"] and one["type"] for one in opened["nodes"])
    again = {
        **shown,
        "design_data": json.dumps({**opened, "viewport": {"x": 1, "y": 1, "zoom": 2}}),
    }
    assert (await browser.post(f"{FLOWS}/design", json.dumps(again)))["version"] == 2
    logs = await browser.post(
        f"{FLOWS}/{saved['id']}/logs/search", '{"page_number":1,"page_size":30}'
    )
    assert logs["content"] == []
    await browser.get(f"{FLOWS}/{saved['id']}/disable")
    await browser.post(f"{FLOWS}/batch-delete", json.dumps({"workflow_id_list": [saved["id"]]}))
