"""Flows that compute, and that reach other systems: each node in a flow that runs."""

import asyncio
import hashlib
import hmac
import json
import secrets
import uuid
from email import message_from_bytes, policy
from itertools import pairwise

import aiomqtt
import pytest

from services.workflow.runs.model import Cause, DeployedFlow
from tests.integration.workflow.designs import design, edge, node, trigger
from tests.integration.workflow.outgoing.conftest import PASSWORD

FLOWS, HOOKS = "/workflow/flows", "/workflow/hooks"
SECRET = "not to be seen 4711"
CODE = "return {text: `${name} is ${degrees * 1.8 + 32} °F`, hot: degrees > 30}"
OUTPUTS = [{"name": "text", "type": "STRING"}, {"name": "hot", "type": "BOOLEAN"}]


def code(language: str = "js", text: str = CODE, **more):
    """A node with code."""
    arguments = {"name": "It", "degrees": "#{properties.start['degrees']}"}
    expression = {"language": language, "expression": text}
    return node("code", "code", **{"expression": expression, "inputArguments": arguments, **more})


def chain(*nodes) -> str:
    """One node after the other."""
    edges = [edge(one["id"], other["id"]) for one, other in pairwise(nodes)]
    return design(list(nodes), *edges)


async def save(workflow, text: str) -> dict:
    """A flow that is enabled."""
    body = {"name": "Outside", "design_data": text, "enabled": True}
    return await workflow.admin().done("POST", f"{FLOWS}/design", body)


async def run(workflow, *nodes, degrees: float = 31):
    """A run of a flow that begins with a trigger."""
    saved = await save(workflow, chain(trigger(("degrees", "DOUBLE")), *nodes))
    flow = DeployedFlow(
        tenant="default",
        flow_id=int(saved["id"]),
        version=1,
        name="Outside",
        node_id="start",
        component="trigger",
    )
    cause = Cause(kind="SERVICE", key=uuid.uuid4().hex)
    return await workflow.core.engine.runner.run_to_end(flow, {"degrees": degrees}, cause)


async def refusal(workflow, *nodes) -> str:
    """Why a design is not enabled."""
    body = {"name": "Outside", "design_data": chain(trigger(), *nodes), "enabled": True}
    answer = await workflow.admin().ask("POST", f"{FLOWS}/design", body)
    assert answer.status_code == 400, answer.text
    return answer.text


PYTHON = (
    "def main():\n    return {'text': f'{name} is {degrees * 1.8 + 32} °F', 'hot': degrees > 30}"
)


@pytest.mark.parametrize(("language", "text"), [("js", CODE), ("python", PYTHON)])
async def test_code_gives_the_output_of_its_node(workflow, language, text):
    """Its inputs are variables, numbers stay numbers."""
    found = await run(workflow, code(language, text, payload=OUTPUTS))
    assert (found.status, found.output["hot"]) == ("SUCCESS", True)
    assert found.output["text"].startswith("It is 87.8")


async def test_code_gets_the_input(workflow):
    """It is `body`; the outputs of all nodes are `properties`."""
    text = "return [body.degrees, properties.start.degrees]"
    assert (await run(workflow, code(text=text, inputArguments={}))).output == [31, 31]


async def test_an_output_of_another_type_than_declared_fails(workflow):
    """With the name and the value."""
    wrong = [{"name": "text", "type": "LONG"}]
    found = await run(workflow, code(text="return {text: 'abc'}", payload=wrong))
    assert found.status == "ERROR"
    assert found.traces[-1].error_message == ("output text must be LONG. Got abc.")


async def test_code_that_loops_fails_its_node(workflow):
    """The run ends, with the reason: the limit of the code or, here the same, of the node."""
    found = await run(workflow, code(text="for (;;) {}"))
    reasons = ("code: took too long", "the node took longer than 1 s")
    assert (found.status, found.traces[-1].error_message in reasons) == ("ERROR", True)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"expression": {"language": "groovy", "expression": "1"}}, "groovy is not supported"),
        ({"expression": {"language": "mvel", "expression": "1"}}, "mvel is not supported"),
        ({"expression": {"language": "js", "expression": "x" * 64_001}}, "expression.expression"),
        ({"inputArguments": {"a-b": 1}}, "must have at most 50 letters"),
        ({"payload": [{"name": "a"}, {"name": "a"}]}, "a is repeated"),
    ],
)
async def test_code_that_cannot_run_is_refused_when_it_is_enabled(workflow, parameters, reason):
    """Other languages, too much code, names that are none."""
    assert reason in await refusal(workflow, code(**parameters))


async def test_a_webhook_is_posted_and_signed(workflow, website):
    """TIMESTAMP, NONCE and SIGNATURE prove who posted what; what came in goes on."""
    hook = node(
        "hook",
        "webhook",
        webhookUrl=f"{website.url}/hook",
        inputArguments={"degrees": "#{properties.start['degrees']}", "kind": "heat"},
        secretKey=SECRET,
    )
    found = await run(workflow, hook)

    assert (found.status, found.output) == ("SUCCESS", {"degrees": 31})
    assert json.loads(website.bodies[0]) == {"degrees": 31, "kind": "heat"}
    headers = website.headers[0]
    signed = (headers["TIMESTAMP"] + headers["NONCE"]).encode() + website.bodies[0]
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert (headers["SIGNATURE"], website.asked[0].method) == (expected, "POST")
    assert headers["Thingway-Hops"] == "1"
    assert SECRET not in str(found.traces)


async def test_a_webhook_without_content_sends_its_input(workflow, website):
    """It is unsigned without a secret."""
    await run(workflow, node("hook", "webhook", webhookUrl=website.url))
    assert json.loads(website.bodies[0]) == {"degrees": 31}
    assert "SIGNATURE" not in website.headers[0]


@pytest.mark.parametrize("path", ["/status/500", "/status/404", "/to/302?url=/end"])
async def test_a_webhook_that_is_not_taken_fails(workflow, website, path):
    """Any status but 2xx; redirects are not followed."""
    found = await run(workflow, node("hook", "webhook", webhookUrl=website.url + path))
    assert found.status == "ERROR"
    assert "the webhook returned status" in found.traces[-1].error_message
    assert len(website.asked) == 1


async def test_the_output_of_a_request_is_the_answer(workflow, website):
    """It has the status, the headers, and JSON as values."""
    ask = node(
        "ask",
        "httpRequest",
        url=f"{website.url}/things?a=1",
        method="POST",
        header={"X-Api-Key": SECRET},
        params={"b": "#{properties.start['degrees']}", "c": "ä b"},
        body={"value": "#{properties.start['degrees']}"},
    )
    found = await run(workflow, ask)
    assert found.output["statusCode"] == 200
    assert found.output["responseHeaders"]["x-seen"] == "yes"
    assert found.output["responseBody"] == {
        "method": "POST",
        "path": "/things?a=1&b=31&c=%C3%A4+b",
        "body": '{"value":31}',
    }
    assert website.headers[0]["X-Api-Key"] == SECRET
    assert website.headers[0]["Content-Type"] == "application/json"


async def test_text_is_put_out_as_text_and_so_is_broken_json(workflow, website):
    """The output has status and headers for any body."""
    ask = node("ask", "httpRequest", url=f"{website.url}/status/404")
    found = await run(workflow, ask)
    assert (found.output["statusCode"], found.output["responseBody"]) == (404, "as you wish")
    found = await run(workflow, node("ask", "httpRequest", url=f"{website.url}/broken"))
    assert (found.output["statusCode"], found.output["responseBody"]) == (200, "{")


async def test_an_address_inside_fails_the_node(workflow):
    """With the host, and who could allow it."""
    ask = node("ask", "httpRequest", url="http://169.254.169.254/latest/meta-data")
    found = await run(workflow, ask)
    assert found.traces[-1].error_message == (
        "169.254.169.254 is not a public address, or the operator has not allowed it "
        "(THINGWAY_OUTGOING_NETWORKS)"
    )


async def test_a_dry_run_sends_nothing(workflow, website):
    """A test that is no dry run does."""
    hook = node("hook", "webhook", webhookUrl=website.url)
    body = {"design_data": chain(trigger(("degrees", "DOUBLE")), hook), "input": {"degrees": 1}}
    user = workflow.admin()
    await user.done("POST", f"{FLOWS}/design/test", {**body, "dry_run": True})
    assert website.asked == []
    await user.done("POST", f"{FLOWS}/design/test", body)
    assert len(website.asked) == 1


async def test_a_dry_run_supposes_that_others_answer(workflow, website):
    """The next nodes get a sample, and nodes that need the real response are skipped."""
    ask = node("ask", "httpRequest", url=website.url, method="POST")
    known = node("known", "output", outputVariables={"s": "#{properties.ask['statusCode']}"})
    deep = node("deep", "output", outputVariables={"x": "#{properties.ask['responseBody']['x']}"})
    body = {"design_data": chain(trigger(), ask, known, deep), "dry_run": True}
    tested = await workflow.admin().done("POST", f"{FLOWS}/design/test", body)
    assert (tested["status"], website.asked) == ("SUCCESS", [])
    assert [info["node_id"] for info in tested["trace_infos"]] == ["start", "ask", "known"]
    assert tested["trace_infos"][-1]["output"] == '{"s":200}'


@pytest.mark.parametrize(
    "one",
    [
        node("n", "httpRequest", url="http://169.254.169.254/latest"),
        node("n", "webhook", webhookUrl="http://169.254.169.254/latest"),
        node("n", "mqttPublish", topic="t", broker={"host": "169.254.169.254"}),
        node(
            "n",
            "email",
            emailConfig={"smtpConfig": {"host": "169.254.169.254", "port": 25}},
            recipients=["a@example.com"],
            fromAddress="b@example.com",
        ),
    ],
    ids=lambda one: one["componentName"],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_dry_run_judges_where_it_would_send(workflow, one, dry_run):
    """As a real one does, and without connecting."""
    body = {"design_data": chain(trigger(), one), "dry_run": dry_run}
    tested = await workflow.admin().done("POST", f"{FLOWS}/design/test", body)
    assert tested["status"] == "ERROR"
    assert "not a public address" in tested["trace_infos"][-1]["error_message"]


def email(post, **more):
    """A node that sends mail."""
    smtp = {"host": "localhost", "port": post.port, "encryption": "NONE"}
    fields = {
        "emailConfig": {"provider": "SMTP", "smtpConfig": smtp},
        "recipients": ["ops@example.com"],
        "subject": "#{properties.start['degrees']} degrees",
        "content": "<b>#{properties.start['degrees']}</b>",
        "fromName": "Flows",
        "fromAddress": "flows@example.com",
    }
    return node("mail", "email", **{**fields, **more})


@pytest.mark.parametrize("encryption", ["NONE"], indirect=True)
async def test_a_mail_is_sent(workflow, post):
    """With references replaced; what came in goes on."""
    found = await run(workflow, email(post))
    assert (found.status, found.output) == ("SUCCESS", {"degrees": 31})
    message = message_from_bytes(post.letters[0].content, policy=policy.default)
    assert message["Subject"] == "31 degrees"
    assert message["From"] == "Flows <flows@example.com>"
    assert message.get_content().strip() == "<b>31</b>"


@pytest.mark.parametrize("encryption", ["NONE"], indirect=True)
async def test_a_mail_goes_by_the_tenants_server(workflow, post):
    """As the settings have it when the flow runs; the sender is its user by default."""
    config = {"useSystemSettings": True, "smtpConfig": {"host": "", "username": ""}}
    node = email(post, emailConfig=config, fromAddress=None)
    admin = workflow.admin()
    smtp = await admin.done("GET", "/credentials/default/SMTP")
    path = f"/credentials/{smtp['id']}"

    without = await run(workflow, node)
    data = {"host": "localhost", "port": str(post.port), "encryption": "NONE"}
    data["username"] = "flows@example.com"
    await admin.done("PUT", path, {"access_secret": "right password", "additional_data": data})
    found = await run(workflow, node)

    assert (without.status, found.status) == ("ERROR", "SUCCESS"), found.error
    assert "the tenant has no mail server" in without.error
    (letter,) = post.letters
    assert letter.mail_from == "flows@example.com"


@pytest.mark.parametrize("encryption", ["NONE"], indirect=True)
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"recipients": []}, "recipients"),
        ({"emailConfig": {"provider": "SMTP"}}, "useSystemSettings"),
        ({"emailConfig": {"smtpConfig": {"host": "", "port": 1}}}, "host"),
        ({"recipients": ["nobody"]}, "nobody is not an email address"),
        ({"recipients": ["a@b.c\r\nBcc: d@e.f"]}, "is not an email address"),
        ({"fromAddress": ""}, "fromAddress"),
        ({"emailConfig": {"smtpConfig": {"host": "a", "port": 0}}}, "port"),
        (
            {"emailConfig": {"provider": "OTHER", "smtpConfig": {"host": "a", "port": 1}}},
            "provider",
        ),
    ],
)
async def test_mail_that_cannot_be_sent_is_refused_when_it_is_enabled(
    workflow, post, fields, reason
):
    """Addresses, ports, providers."""
    assert reason in await refusal(workflow, email(post, **fields))


@pytest.mark.parametrize("broker", ["plain"], indirect=True)
async def test_a_message_is_published(workflow, broker):
    """To the topic; the payload is what came in by default."""
    fields = {"host": "localhost", "port": broker.port, "username": "flows", "password": PASSWORD}
    publish = node(
        "publish", "mqttPublish", broker=fields, topic="heat/#{properties.start['degrees']}"
    )
    listener = aiomqtt.Client("localhost", broker.port, username="flows", password=PASSWORD)
    async with asyncio.timeout(30), listener:
        await listener.subscribe("heat/+")
        found = await run(workflow, publish)
        message = await anext(aiter(listener.messages))
    assert found.status == "SUCCESS", found.traces[-1].error_message
    assert (str(message.topic), json.loads(message.payload)) == ("heat/31", {"degrees": 31})


@pytest.mark.parametrize("topic", ["", "a/+", "a/#"])
async def test_a_topic_that_cannot_be_published_to_is_refused(workflow, topic):
    """Those of subscriptions."""
    publish = node("publish", "mqttPublish", broker={"host": "example.com"}, topic=topic)
    assert "topic" in await refusal(workflow, publish)


def hooked(token: str, website) -> str:
    """Return a flow that starts with a request and posts its input."""
    hook = node("hook", "webhook", webhookUrl=website.url)
    return chain(node("start", "httpIn", token=token), hook)


async def test_a_flow_begins_when_its_address_is_posted_to(workflow, website):
    """Without a login; body, query, headers and the host called come in, credentials do not."""
    token = secrets.token_urlsafe(32)
    saved = await save(workflow, hooked(token, website))
    answer = await workflow.http.post(
        f"{HOOKS}/{token}?a=1",
        json={"b": [2]},
        headers={"Authorization": SECRET, "Accept": "x/y", "X-Forwarded-Host": "iot.example.com"},
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "Success")
    async with asyncio.timeout(30):
        given = json.loads(await website.heard.get())
    assert (given["body"], given["params"], given["header"]["accept"]) == (
        {"b": [2]},
        {"a": "1"},
        "x/y",
    )
    assert given["header"]["host"] == "iot.example.com"
    assert SECRET not in str(given)
    await workflow.core.engine.runner.drain(10)
    rows = await workflow.admin().done("POST", f"{FLOWS}/{saved['id']}/logs/search", {})
    assert [row["id"] for row in rows] == [answer.json()["data"]["run_id"]]


async def test_a_hook_is_there_as_long_as_its_flow_runs(workflow, website):
    """Unknown, disabled and deleted hooks have the same response."""
    token = secrets.token_urlsafe(32)
    saved = await save(workflow, hooked(token, website))
    user = workflow.admin()
    await user.done("GET", f"{FLOWS}/{saved['id']}/disable")
    for one in (token, secrets.token_urlsafe(32), "x"):
        answer = await workflow.http.post(f"{HOOKS}/{one}", content=b"")
        assert answer.status_code == 404, answer.text
    await user.done("GET", f"{FLOWS}/{saved['id']}/enable")
    kind = {"Content-Type": "text/x-notjson; charset=iso-8859-1"}
    answer = await workflow.http.post(f"{HOOKS}/{token}", content=b"{\xe4", headers=kind)
    assert answer.status_code == 200
    async with asyncio.timeout(30):
        assert json.loads(await website.heard.get())["body"] == "{ä"


async def test_two_flows_do_not_share_an_address(workflow, website):
    """Saving the second flow is a conflict."""
    token = secrets.token_urlsafe(32)
    await save(workflow, hooked(token, website))
    body = {"name": "Other", "design_data": hooked(token, website), "enabled": True}
    answer = await workflow.admin("other").ask("POST", f"{FLOWS}/design", body)
    assert answer.status_code == 409
    assert "token" in answer.text


async def test_a_token_that_could_be_guessed_is_refused(workflow, website):
    """Short ones, and such that no address can end with."""
    for token in ("", "a" * 31, "a/" * 20, "ä" * 40):
        body = {"name": "Short", "design_data": hooked(token, website), "enabled": True}
        answer = await workflow.admin().ask("POST", f"{FLOWS}/design", body)
        assert answer.status_code == 400
        assert "token" in answer.text


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'"\xff"', "application/vnd.x+json", 400),
        (b"x" * 262_145, "text/plain", 413),
    ],
    ids=["broken", "deep", "not UTF-8", "large"],
)
async def test_an_unreadable_answer_is_rejected(workflow, website, content, kind, status):
    """It is broken, too deep or too large JSON."""
    token = secrets.token_urlsafe(32)
    await save(workflow, hooked(token, website))
    answer = await workflow.http.post(
        f"{HOOKS}/{token}", content=content, headers={"Content-Type": kind}
    )
    assert answer.status_code == status, answer.text


async def test_hops_come_in_with_a_request(workflow, website):
    """A flow that posts to its own address comes to an end."""
    token = secrets.token_urlsafe(32)
    saved = await save(workflow, hooked(token, website))
    answer = await workflow.http.post(f"{HOOKS}/{token}", headers={"Thingway-Hops": "8"})
    assert answer.status_code == 200
    run_id = answer.json()["data"]["run_id"]
    await workflow.core.engine.runner.drain(10)
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{run_id}")
    assert "stopped" in str(detail)
    assert website.asked == []
    assert saved["version"] == 1
