"""Credentials of tenants: kept encrypted, told to whom may see them, used by flows."""

import asyncio

import pytest

from libs.common.identity.functions import Function
from services.workflow.credentials import service
from services.workflow.credentials.store import CredentialsType
from services.workflow.outgoing.mail import MailServer
from tests.integration.workflow.conftest import Workflow

MAIL = {
    "host": "smtp.example.org",
    "port": "2525",
    "encryption": "STARTTLS",
    "username": "ann@example.org",
    "theirs": [1],
}


async def default(workflow: Workflow, kind: str, flag: bool = True, user=None):
    path = f"/credentials/default/{kind}?auto_generate_password={str(flag).lower()}"
    return await (user or workflow.admin()).done("GET", path)


async def test_a_default_is_made_once(workflow: Workflow):
    """Concurrent and later requests get the same credential."""
    found = await asyncio.gather(*(default(workflow, "MQTT") for _ in range(5)))

    assert all(entry == found[0] for entry in found)
    made = found[0]
    assert made.pop("created_at") == made.pop("updated_at") > 0
    assert len(made.pop("access_secret")) == 32
    assert made.pop("id").isdecimal()
    answer = await workflow.admin().ask("GET", "/credentials/default/MQTT")
    assert answer.headers["cache-control"] == "no-store"
    assert made == {
        "tenant_id": "default",
        "credentials_type": "MQTT",
        "access_key": "mqtt@default",
        "editable": True,
    }
    assert (await default(workflow, "http", flag=False))["access_secret"] == ""


async def test_the_mail_server_comes_back_as_saved(workflow: Workflow):
    """Text for a port, and fields that are a console's own; the key is not changed."""
    admin, made = workflow.admin(), await default(workflow, "SMTP", flag=False)
    body = {"access_key": "other", "access_secret": "päss", "additional_data": MAIL}

    await admin.done("PUT", f"/credentials/{made['id']}", body | {"description": "ours"})

    found = await default(workflow, "SMTP", flag=False)
    assert found | {"updated_at": 0} == made | {
        "access_secret": "päss",
        "additional_data": MAIL,
        "description": "ours",
        "updated_at": 0,
    }
    assert await workflow.core.nodes.credentials.find_mail_server("default") == MailServer(
        host="smtp.example.org",
        port=2525,
        encryption="STARTTLS",
        username="ann@example.org",
        password="päss",
    )
    await admin.done("PUT", f"/credentials/{made['id']}", {"access_secret": "päss"})
    assert "additional_data" not in await default(workflow, "SMTP")
    assert await workflow.core.nodes.credentials.find_mail_server("default") is None


async def test_nothing_readable_is_kept(workflow: Workflow):
    """Secret, description and additional data are encrypted; struct names show no secret."""
    made = await default(workflow, "HTTP")
    smtp = await default(workflow, "SMTP", flag=False)
    await workflow.admin().done(
        "PUT", f"/credentials/{smtp['id']}", {"access_secret": "hidden-1", "additional_data": MAIL}
    )

    kept = str(await workflow.core.clients.mongo.database["credentials"].find({}).to_list(None))

    assert not [one for one in (made["access_secret"], "hidden-1", "ann@example") if one in kept]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "additional_data.host"),
        ({**MAIL, "host": ""}, "additional_data.host"),
        ({**MAIL, "port": "0"}, "additional_data.port"),
        ({**MAIL, "port": "70000"}, "additional_data.port"),
        ({**MAIL, "port": "smtp"}, "additional_data.port"),
        ({**MAIL, "encryption": "SSL"}, "additional_data.encryption"),
        ({**MAIL, "username": 7}, "additional_data.username"),
        ({"x": "y" * 20_000}, "additional_data"),
    ],
)
async def test_a_mail_server_that_cannot_be_is_refused(workflow: Workflow, data, field):
    """By the field that is wrong."""
    made = await default(workflow, "SMTP")
    body = {"access_secret": "x", "additional_data": data}
    await workflow.admin().refused(400, "PUT", f"/credentials/{made['id']}", body, field=field)


@pytest.mark.parametrize("secret", ["short", "with blank s", "ümlauts!", "x" * 129])
async def test_a_secret_that_no_client_could_type_is_refused(workflow: Workflow, secret: str):
    """8 to 128 printable characters, or none at all, and then nobody signs in."""
    made = await default(workflow, "HTTP")
    path = f"/credentials/{made['id']}"
    await workflow.admin().refused(
        400, "PUT", path, {"access_secret": secret}, field="access_secret"
    )
    await workflow.admin().done("PUT", path, {"access_secret": ""})
    login = workflow.core.nodes.credentials.verify_login
    assert await login(CredentialsType.HTTP, "http@default", "") is None


async def test_a_client_logs_in_with_key_and_secret(workflow: Workflow):
    """The type must be right, and the secret the current one."""
    made, login = await default(workflow, "MQTT"), workflow.core.nodes.credentials.verify_login
    secret = made["access_secret"]

    assert await login(CredentialsType.MQTT, "mqtt@default", secret) == "default"
    assert await login(CredentialsType.HTTP, "mqtt@default", secret) is None
    assert await login(CredentialsType.MQTT, "mqtt@default", secret + "x") is None
    assert await login(CredentialsType.MQTT, "mqtt@other", secret) is None
    await workflow.admin().done(
        "PUT", f"/credentials/{made['id']}", {"access_secret": "another-one"}
    )
    assert await login(CredentialsType.MQTT, "mqtt@default", secret) is None


async def test_more_are_made_listed_and_deleted(workflow: Workflow, monkeypatch):
    """One of each key; those of MQTT and HTTP bear the tenant's name; up to a bound."""
    admin = workflow.admin()
    gate = {"credentials_type": "HTTP", "access_key": "gate@default", "access_secret": "12345678"}
    await default(workflow, "SMTP")

    await admin.done("POST", "/credentials", gate)

    await admin.refused(409, "POST", "/credentials", gate, field="access_key")
    for key in ("gate", "gate@other", "@default", "a/b@default", "a.b@default", ""):
        body = gate | {"access_key": key}
        await admin.refused(400, "POST", "/credentials", body, field="access_key")
    found = await admin.done("GET", "/credentials?page_size=1")
    assert (found["total"], found["content"][0]["access_key"]) == (2, "gate@default")
    for name in ("credentials_type", "credentialsType"):
        listed = await admin.done("GET", f"/credentials?{name}=SMTP&page_size=999999")
        assert [one["access_key"] for one in listed["content"]] == ["smtp@default"]
    one = found["content"][0]
    assert await admin.done("GET", f"/credentials/{one['id']}") == one
    monkeypatch.setattr(service, "MAX_CREDENTIALS", 2)
    body = gate | {"access_key": "more@default"}
    await admin.refused(400, "POST", "/credentials", body, field="access_key")
    await admin.done("POST", "/credentials/delete", {"ids": [one["id"], "5"]})
    await admin.refused(404, "GET", f"/credentials/{one['id']}", code="data_no_found")
    await admin.refused(400, "GET", "/credentials/default/FTP", field="credentials_type")


async def test_credentials_belong_to_a_tenant(workflow: Workflow):
    """Tenants cannot read, change or delete those of others."""
    ours, other = await default(workflow, "SMTP"), workflow.admin("acme")
    theirs = await default(workflow, "SMTP", user=other)
    path = f"/credentials/{ours['id']}"

    assert theirs["access_key"] == "smtp@acme"
    await other.refused(404, "GET", path)
    await other.refused(404, "PUT", path, {"access_secret": "x"})
    await other.done("POST", "/credentials/delete", {"ids": [ours["id"]]})
    assert (await default(workflow, "SMTP"))["id"] == ours["id"]
    assert (await other.done("GET", "/credentials"))["total"] == 1


async def test_each_operation_on_credentials_needs_its_function(workflow: Workflow):
    """`credentials.view` reads, `credentials.edit` does both."""
    made = await default(workflow, "SMTP")
    reader = workflow.user(8, Function.CREDENTIALS_VIEW)
    nobody = workflow.user(9, Function.WORKFLOW_EDIT)
    path = f"/credentials/{made['id']}"

    assert await reader.done("GET", path) == made
    await reader.refused(403, "PUT", path, {"access_secret": "x"})
    await nobody.refused(403, "GET", path)
