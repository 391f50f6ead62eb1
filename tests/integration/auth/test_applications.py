"""The operations on applications over the bus, and the events they make."""

import asyncio

import msgspec
import pytest

from libs.common.contracts.auth import (
    Application,
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    Done,
    ListApplications,
)
from libs.common.contracts.events import AccountChanged, Actor, ChangedObject
from libs.common.errors import Conflict, InvalidInput, NotFound


async def test_an_application_is_created_listed_and_found(auth):
    """The secret is shown once and nowhere again."""
    made = await auth.application("b", events=True)
    await auth.application("a")
    await auth.tenant("elsewhere")
    await auth.application("b", tenant="elsewhere")

    listed = await auth.call("list_applications", ListApplications(), Applications)
    found = await auth.call("get_application", ApplicationRef(made.application_id), Application)

    assert [each.name for each in listed.applications] == ["a", "b"]
    assert listed.applications[1] == found
    assert (found.client_id, found.events, found.tenant) == (made.client_id, True, "default")
    assert len(made.client_secret) == 43


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (CreateApplication(name=" "), "name"),
        (CreateApplication(name="x" * 65), "name"),
        (CreateApplication(name="a\x00b"), "name"),
    ],
)
async def test_a_bad_application_is_refused(auth, wanted, field):
    """400 names the field."""
    with pytest.raises(InvalidInput, match=field):
        await auth.call("create_application", wanted, ApplicationSecret)


async def test_a_name_is_taken_once_in_a_tenant(auth):
    """The second is 409; another tenant has names of its own."""
    await auth.tenant("elsewhere")
    await auth.application("same")
    await auth.application("same", tenant="elsewhere")

    with pytest.raises(Conflict, match="name"):
        await auth.application(" same ")


@pytest.mark.parametrize(
    "operation", ["get_application", "rotate_application_secret", "delete_application"]
)
async def test_an_application_of_another_tenant_is_unknown(auth, operation):
    """404, and nothing happens to it."""
    made = await auth.application()
    await auth.tenant("elsewhere")

    with pytest.raises(NotFound):
        await auth.call(operation, ApplicationRef(made.application_id, "elsewhere"), Done)

    assert await auth.log_in(made)


async def test_each_change_is_an_event(auth):
    """EVENTS contains each audit entry, with the operator as the actor."""
    await auth.tenant("t9")
    admin = await auth.door.bus("admin")
    told = await admin.client.subscribe("event.t9.auth.application.*")
    await admin.client.flush()
    made = await auth.application(tenant="t9")
    reference = ApplicationRef(made.application_id, "t9")
    await auth.call("rotate_application_secret", reference, ApplicationSecret)
    await auth.call("delete_application", reference, Done)

    messages = [await told.next_msg(5) for _ in range(3)]
    await admin.drain()

    bodies = [msgspec.json.decode(message.data, type=AccountChanged) for message in messages]
    assert [message.subject.rpartition(".")[2] for message in messages] == [
        "created",
        "rotated",
        "deleted",
    ]
    subject = ChangedObject("application", str(made.application_id), "first")
    assert [body.object for body in bodies] == [subject] * 3
    assert [body.actor for body in bodies] == [Actor("user", "0", "operator")] * 3
    assert not await auth.mongo.database["outbox"].count_documents({})


async def test_an_application_needs_a_tenant(auth):
    """404 names it; the operator creates tenants first."""
    with pytest.raises(NotFound, match="nowhere"):
        await auth.application(tenant="nowhere")


async def test_a_revocation_is_finished_by_the_sweep_after_a_crash(auth):
    """The sweep applies a stored revocation within seconds."""
    made = await auth.application()
    tokens = await auth.log_in(made)
    applications = auth.mongo.database["applications"]
    await applications.update_one({}, {"$set": {"secretHash": "new"}, "$inc": {"generation": 1}})
    stored = await applications.find_one({})
    await auth.mongo.database["revocations"].insert_one(
        {
            "kind": "application",
            "subject": str(stored["_id"]),
            "generation": stored["generation"],
            "at": stored["createdAt"].replace(year=2020),
        }
    )

    async with asyncio.timeout(30):
        while await auth.principal(tokens["access_token"]):
            await asyncio.sleep(0.1)
