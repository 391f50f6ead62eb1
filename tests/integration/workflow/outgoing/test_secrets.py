"""Secrets of flows: neither stored in the open nor shown again, and there when they are used."""

import json

import pytest
from bson import json_util

from services.workflow.vault import UNKNOWN_MARK_REASON
from tests.integration.workflow.designs import design, edge, node, trigger
from tests.integration.workflow.outgoing.conftest import Web

FLOWS = "/workflow/flows"
SECRET = "hunter2 of the mail server"
MAIL = {"subject": "s", "content": "c", "recipients": ["to@example.com"]}


def asking(url: str, header: str = SECRET, **headers: str) -> str:
    """A flow that asks a web server with a credential."""
    sent = {"X-Api-Key": header, "Accept": "text/plain", **headers}
    ask = node("ask", "httpRequest", url=url, header=sent)
    return design([trigger(), ask], edge("start", "ask"))


def mailing(host: str = "mail.example.com", password: str = SECRET, **more) -> str:
    """A flow that sends mail."""
    smtp = {"host": host, "port": 25, "username": "a@example.com", "password": password}
    mail = node("mail", "email", emailConfig={"smtpConfig": smtp}, **(MAIL | more))
    return design([trigger(), mail], edge("start", "mail"))


def publishing(broker: dict[str, str]) -> str:
    """A flow that publishes."""
    return design(
        [trigger(), node("m", "mqttPublish", topic="t", broker=broker)], edge("start", "m")
    )


async def save(user, text: str, **fields) -> dict:
    """Save a design; the answer."""
    return await user.done("POST", f"{FLOWS}/design", {"name": "F", "design_data": text, **fields})


async def read(user, saved: dict, version: str = "") -> str:
    """Its design, as an editor gets it."""
    path = f"{FLOWS}/{saved['id']}/design?version={version}"
    return (await user.done("GET", path))["design_data"]


def parameters(text: str) -> dict:
    """Those of the second node."""
    return json.loads(text)["nodes"][1]["data"]["parameters"]


def password(text: str) -> str:
    """Of the mail server."""
    return parameters(text)["emailConfig"]["smtpConfig"]["password"]


async def stored(workflow) -> str:
    """All that the service keeps."""
    database = workflow.core.clients.mongo.database
    names = await database.list_collection_names()
    rows = [one for name in names for one in await database[name].find({}).to_list(None)]
    return json_util.dumps(rows)


async def tried(user, text: str) -> dict:
    """What became of the last node of a test that is for real."""
    body = {"design_data": text}
    return (await user.done("POST", f"{FLOWS}/design/test", body))["trace_infos"][-1]


@pytest.mark.parametrize(
    "text",
    [
        mailing(),
        publishing({"host": "a", "password": SECRET}),
        design([trigger(), node("w", "webhook", webhookUrl="https://a", secretKey=SECRET)]),
        asking("https://a/b"),
        asking("https://a/b").replace("componentName", "neverRead"),
    ],
)
async def test_a_secret_is_neither_stored_in_the_open_nor_shown(workflow, text):
    """An editor gets a mark for it, short enough for its forms, of a draft and of old versions."""
    user = workflow.admin()
    saved = await save(user, text)
    await save(user, design([trigger()]), id=saved["id"], version=1)

    shown = await read(user, saved, "1")
    assert SECRET not in shown
    assert "******" in shown
    assert SECRET not in await stored(workflow)


async def test_a_design_that_is_saved_as_it_was_shown_keeps_its_secret(workflow, website: Web):
    """In the same version, in another one, in a test, in a node's test and in another flow."""
    user = workflow.admin()
    saved = await save(user, asking(website.url), enabled=True)
    shown = await read(user, saved)
    again = await save(user, shown, id=saved["id"], version=1, enabled=True)
    assert again["version"] == 1
    moved = shown.replace('"x":0', '"x":5')
    assert (await save(user, moved, id=saved["id"], version=1))["version"] == 2
    await save(user, shown, name="copy", enabled=True)

    assert (await tried(user, shown))["status"] == "SUCCESS"
    config = json.dumps(json.loads(shown)["nodes"][1])
    body = {"node_config": config}
    await user.done("POST", f"{FLOWS}/node/test", body)
    assert [header["X-Api-Key"] for header in website.headers] == [SECRET, SECRET]


async def test_the_same_secret_typed_again_makes_no_other_version(workflow):
    """Another one does."""
    user = workflow.admin()
    saved = await save(user, mailing())
    assert (await save(user, mailing(), id=saved["id"], version=1))["version"] == 1
    other = mailing(password="another")
    assert (await save(user, other, id=saved["id"], version=1))["version"] == 2


async def test_a_secret_goes_nowhere_else(workflow, website: Web):
    """With another server, the mark is invalid and the error asks for the secret."""
    user = workflow.admin()
    shown = await read(user, await save(user, asking("https://example.com/a")))
    elsewhere = shown.replace("https://example.com", website.url)
    reason = {
        "node_id": "ask",
        "field": "parameters.header.X-Api-Key",
        "reason": UNKNOWN_MARK_REASON,
    }

    said = f"{reason['field']}: {UNKNOWN_MARK_REASON}"
    failed = await tried(user, elsewhere)
    assert (failed["node_id"], failed["error_message"]) == ("ask", said)
    body = {"name": "E", "design_data": elsewhere, "enabled": True}
    refusal = await user.refused(400, "POST", f"{FLOWS}/design", body, field="design_data")
    assert refusal["data"] == [reason]
    draft = await save(user, elsewhere)
    await user.refused(400, "GET", f"{FLOWS}/{draft['id']}/enable", field="design_data")
    config = json.dumps(json.loads(elsewhere)["nodes"][1])
    body = {"node_config": config}
    assert (await user.done("POST", f"{FLOWS}/node/test", body))["error_message"] == said
    assert website.asked == []


async def test_a_secret_is_of_its_tenant_and_of_its_kind_of_node(workflow):
    """Elsewhere its mark is nothing."""
    shown = await read(workflow.admin(), await save(workflow.admin(), mailing()))
    body = {"design_data": shown}
    path = f"{FLOWS}/design/validate"
    assert await workflow.admin().done("POST", f"{FLOWS}/design/test", body)
    answer = (await workflow.admin("other").ask("POST", path, body)).json()
    assert (answer["data"], answer["detail"][0]["reason"]) == (False, UNKNOWN_MARK_REASON)

    broker = {"host": "mail.example.com", "password": password(shown)}
    body = {"design_data": publishing(broker)}
    answer = (await workflow.admin().ask("POST", path, body)).json()
    assert answer["data"] is False


async def test_references_and_harmless_headers_stay(workflow):
    """They are no secrets, and an editor shows them."""
    user, text = workflow.admin(), "#{properties.start['x']}"
    assert password(await read(user, await save(user, mailing(password=text)))) == text
    shown = await read(user, await save(user, asking("https://a", Accept="text/html")))
    assert parameters(shown)["header"]["Accept"] == "text/html"


async def test_a_secret_goes_with_the_last_flow_that_has_it(workflow):
    """A copy keeps it; when both are deleted nothing is left."""
    user, secrets = workflow.admin(), workflow.core.clients.mongo.database["flow_secrets"]
    first = await save(user, mailing())
    second = await save(user, await read(user, first), name="copy")
    for flow, left in ((first, 1), (second, 0)):
        await user.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow["id"]]})
        assert await secrets.count_documents({}) == left


async def test_a_secret_that_is_too_long_is_refused_as_before(workflow):
    """Its mark does not hide that."""
    body = {"name": "L", "design_data": mailing(password="x" * 300), "enabled": True}
    refusal = await workflow.admin().refused(400, "POST", f"{FLOWS}/design", body)
    assert refusal["data"][0]["field"] == "parameters.emailConfig.smtpConfig.password"
