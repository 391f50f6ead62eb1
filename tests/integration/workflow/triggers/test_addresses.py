"""Flows that begin with a request of who has the tenant's HTTP credential."""

import asyncio
import base64
from typing import Any

import httpx
import pytest

from services.workflow.triggers import hooks
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import design, edge, node
from tests.integration.workflow.triggers.world import enabled

GIVEN = "#{properties.start['%s']}"
PATH = "/workflow-http-in/http@default"


async def secret(workflow: Workflow, tenant: str = "default") -> str:
    path = "/credentials/default/HTTP?auto_generate_password=true"
    return str((await workflow.admin(tenant).done("GET", path))["access_secret"])


def begins(method: str, url: str, *shown: str, **more: Any) -> str:
    """Return a flow with an address that responds with a part of its input."""
    variables = {name.replace(".", "_"): GIVEN % name for name in shown or ("body",)}
    start = node("start", "httpIn", method=method, url=url, **more)
    return design([start, node("end", "output", outputVariables=variables)], edge("start", "end"))


async def ask(
    workflow: Workflow, method: str, path: str, login: tuple[str, str] | None, **more: Any
) -> httpx.Response:
    auth = httpx.BasicAuth(*login) if login else None
    headers = {"x-real-ip": "203.0.113.9", **more.pop("headers", {})}
    return await workflow.http.request(method, path, auth=auth, headers=headers, **more)


async def outputs(workflow: Workflow, flow: int, count: int = 1) -> list[Any]:
    """Return the outputs of the latest runs of a flow."""
    async with asyncio.timeout(30):
        while True:
            await workflow.core.engine.runner.drain(0.05)
            runs = (
                await workflow.core.clients.mongo.database["runs"]
                .find({"flow": flow})
                .to_list(None)
            )
            if len(runs) >= count and all(run["status"] != "RUNNING" for run in runs):
                return runs
            await asyncio.sleep(0.01)


async def called(workflow: Workflow, flow: int) -> int:
    """How many runs a flow has."""
    return await workflow.core.clients.mongo.database["runs"].count_documents({"flow": flow})


async def test_a_call_runs_every_flow_that_has_the_address(workflow: Workflow):
    """Method and path match, with variables for segments; the response has no output."""
    admin, login = workflow.admin(), ("http@default", await secret(workflow))
    texts = [
        begins("POST", "devices/{id}/report"),
        begins("POST", "/devices/7/report/"),
        begins("PUT", "devices/{id}/report"),
        begins("POST", "devices/{id}"),
    ]
    flows = [await enabled(admin, text, name=f"F{at}") for at, text in enumerate(texts)]

    answer = await ask(workflow, "POST", f"{PATH}/devices/7/report", login, json={"a": 1})
    other = await ask(workflow, "POST", f"{PATH}/devices/8/report", login, json={"a": 2})
    nothing = await ask(workflow, "DELETE", f"{PATH}/devices/8/report", login)

    for one in (answer, other, nothing):
        assert one.status_code == 200
        assert set(one.json()) == {"status", "request_id"}
    assert [await called(workflow, flow) for flow in flows] == [2, 1, 0, 0]


async def test_a_flow_is_given_the_request(workflow: Workflow):
    """Body, query, headers without the login, url, and the variables of the address."""
    admin, login = workflow.admin(), ("http@default", await secret(workflow))
    text = begins("POST", "rooms/{room}/{what}")
    flow = await enabled(admin, text)

    path = f"{PATH}/rooms/h%C3%A4ll%2F2/heat?q=1&q2=x"
    assert (await ask(workflow, "POST", path, login, json=[1, 2])).status_code == 200

    await outputs(workflow, flow)
    logs = await admin.done("POST", f"/workflow/flows/{flow}/logs/search", {})
    log = await admin.done("GET", f"/workflow/flows/logs/{logs[0]['id']}")
    given = str(log["trace_info"])
    assert "häll/2" in given
    assert login[1] not in given


@pytest.mark.parametrize("files", [True, False])
async def test_a_form_is_texts_and_files(workflow: Workflow, files: bool):
    """Files are base64, next to texts and the query."""
    admin, login = workflow.admin(), ("http@default", await secret(workflow))
    flow = await enabled(admin, begins("POST", "form", "params"))
    more: dict[str, Any] = {"files": {"photo": ("a.bin", b"\x00\x01")}} if files else {"json": {}}

    answer = await ask(
        workflow, "POST", f"{PATH}/form?q=1", login, data={"name": "x"} if files else None, **more
    )

    assert answer.status_code == 200, answer.text
    (run,) = await outputs(workflow, flow)
    assert run["status"] == "SUCCESS"
    if files:
        assert base64.b64encode(b"\x00\x01").decode() in str(run)


async def test_calls_without_the_secret_are_rejected(workflow: Workflow):
    """No login, a wrong secret, another key and another tenant's get 401, and no flow runs."""
    right = await secret(workflow)
    other = await secret(workflow, "acme")
    flow = await enabled(workflow.admin(), begins("GET", "x"))
    path = f"{PATH}/x"
    for login in (
        None,
        ("http@default", "wrong-one"),
        ("http@default", ""),
        ("mqtt@default", right),
        ("http@acme", other),
        ("http@default", other),
    ):
        answer = await ask(workflow, "GET", path, login)
        assert (answer.status_code, answer.json()["error_code"]) == (401, "authentication_failed")
    assert await called(workflow, flow) == 0


async def test_flows_of_another_tenant_are_not_reached(workflow: Workflow):
    """The address is the same, the credential says whose."""
    login = ("http@acme", await secret(workflow, "acme"))
    ours = await enabled(workflow.admin(), begins("GET", "x"))
    theirs = await enabled(workflow.admin("acme"), begins("GET", "x"))

    assert (await ask(workflow, "GET", "/workflow-http-in/http@acme/x", login)).status_code == 200

    assert [await called(workflow, one) for one in (ours, theirs)] == [0, 1]


async def test_without_a_flow_or_a_path_it_is_a_mistake(workflow: Workflow):
    """400: no flow of the tenant has any address, or none was called; a large body is 413."""
    login = ("http@default", await secret(workflow))
    for path in (f"{PATH}/x", PATH, f"{PATH}/"):
        answer = await ask(workflow, "GET", path, login)
        assert (answer.status_code, answer.json()["error_code"]) == (400, "parameter_syntax_error")
    await enabled(workflow.admin(), begins("POST", "x"))
    assert (await ask(workflow, "POST", PATH, login)).status_code == 400
    large = await ask(workflow, "POST", f"{PATH}/x", login, content=b"x" * 300_000)
    assert large.status_code == 413


async def test_guessing_is_slowed_down(workflow: Workflow, monkeypatch):
    """An address with many failures waits for a time; other addresses do not."""
    monkeypatch.setattr(hooks, "MAX_LOGIN_FAILURES", 3)
    login = ("http@default", await secret(workflow))
    await enabled(workflow.admin(), begins("GET", "x"))
    wrong = [await ask(workflow, "GET", f"{PATH}/x", ("http@default", "no")) for _ in range(4)]
    assert [one.status_code for one in wrong] == [401, 401, 401, 429]

    elsewhere = {"headers": {"x-real-ip": "203.0.113.10"}}

    assert (await ask(workflow, "GET", f"{PATH}/x", login, **elsewhere)).status_code == 200
    monkeypatch.setattr(hooks, "LOGIN_PAUSE_SECONDS", 0.0)
    assert (await ask(workflow, "GET", f"{PATH}/x", login)).status_code == 200


async def test_a_disabled_flow_is_not_called(workflow: Workflow):
    """Nor is a flow whose address has changed."""
    admin, login = workflow.admin(), ("http@default", await secret(workflow))
    flow = await enabled(admin, begins("GET", "x"))
    await admin.done("GET", f"/workflow/flows/{flow}/disable")
    keeper = await enabled(admin, begins("GET", "other"), name="Keeper")

    assert (await ask(workflow, "GET", f"{PATH}/x", login)).status_code == 200

    assert [await called(workflow, one) for one in (flow, keeper)] == [0, 0]


async def test_an_address_begins_a_bounded_number_of_flows(workflow: Workflow, monkeypatch):
    """One more is refused when it is to run."""
    monkeypatch.setattr(hooks, "MAX_FLOWS_PER_ADDRESS", 1)
    admin = workflow.admin()
    await enabled(admin, begins("GET", "{a}/x"))
    body = {"name": "Two", "design_data": begins("GET", "{b}/x"), "enabled": True}
    await admin.refused(409, "POST", "/workflow/flows/design", body, field="url")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "must not be empty"),
        ("a//b", "empty segments"),
        ("a/../b", "empty segments"),
        ("a/{b}c", "whole segment"),
        ("a?b", "must not have"),
        ("{a}/{a}", "repeat a variable"),
        ("/".join("a" * 9), "at most 8"),
        ("{1a}", "whole segment"),
    ],
)
async def test_an_address_that_cannot_be_is_refused_when_it_is_enabled(
    workflow: Workflow, url: str, reason: str
):
    """With the reason."""
    body = {"name": "F", "design_data": begins("GET", url), "enabled": True}
    refused = await workflow.admin().refused(400, "POST", "/workflow/flows/design", body)
    assert reason in str(refused)
