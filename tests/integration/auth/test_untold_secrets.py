"""No secret is ever told: not in the audit log, not in the outbox, not in an event."""

import re
from pathlib import Path
from typing import Any

from libs.common.contracts.auth import (
    ApplicationRef,
    ApplicationSecret,
    CreateUser,
    Done,
    UserPassword,
    UserRefByEmail,
)
from libs.common.contracts.limits import SetLimits, TenantLimits
from tests.integration.auth.conftest import Auth
from tests.integration.auth.people import (
    CLIENT,
    FIRST,
    PASSWORD,
    add_user,
    caller,
    first_user,
    refresh,
    sign_in,
    signed_in,
)

SERVICE = Path(__file__).parents[3] / "services/auth"
HOLDERS = ("applications/*.py", "login_records.py", "sign_in/*.py", "tenants/*.py", "users/*.py")
"""The modules whose changes have to do with secrets."""


def told_actions() -> set[str]:
    """Return every audit action in the source of these modules."""
    text = "".join(path.read_text() for name in HOLDERS for path in SERVICE.glob(name))
    assigned = re.findall(r'\baction(?:: str)? = "(\w+)"(?: if .* else "(\w+)")?', text)
    named = re.findall(r'(?:change\.record|changes\.record\(.*)[(,]\s*"(\w+)"', text)
    passed = re.findall(r'self\._update_if_changed\([^)]*"(\w+)"\)', text)
    return {*named, *passed, *(word for pair in assigned for word in pair if word)}


async def change_applications(auth: Auth) -> set[str]:
    """Every change of an application by the API and by the operator; the secrets it had."""
    new = {"name": "a", "events": True}
    made = await auth.done("POST", "/application", new)
    path = f"/application/{made['application_id']}"
    renewed = await auth.done("POST", f"{path}/secret")
    await auth.done("PUT", path, {"name": "b", "events": False})
    await auth.done("PUT", f"{path}/allowed-addresses", {"allowed_addresses": ["192.0.2.1"]})
    await auth.done("DELETE", path)
    by_operator = await auth.application()
    reference = ApplicationRef(by_operator.application_id)
    rotated = await auth.call("rotate_application_secret", reference, ApplicationSecret)
    tokens = await auth.log_in(rotated)
    await auth.call("delete_application", reference, Done)
    return {
        made["client_secret"],
        renewed["client_secret"],
        by_operator.client_secret,
        rotated.client_secret,
        *tokens_of(tokens),
    }


async def change_people(auth: Auth) -> set[str]:
    """Every change of a user and of a session; the passwords and tokens that there were."""
    root = await first_user(auth)
    user = await add_user(auth, root)
    member = f"/user/members/{user}"
    await auth.done("PUT", member, {"email": "third@example.com", "nickname": "Third"}, caller=root)
    await auth.done("PUT", f"{member}/change-password", {"password": "Changed-1"}, caller=root)
    tokens = await signed_in(auth, "third@example.com", "Changed-1")
    renewed = (await refresh(auth, tokens["refresh_token"])).json()["data"]
    await refresh(auth, renewed["refresh_token"])
    assert (await refresh(auth, tokens["refresh_token"])).status_code == 401
    for enabled in (False, True):
        await auth.done("PUT", f"{member}/status", {"enabled": enabled}, caller=root)
    await sign_in(auth, "third@example.com", "Mistyped-1")
    await auth.entry(action="refused")
    new_user = CreateUser("fourth@example.com", "Fourth")
    made = await auth.call("create_user", new_user, UserPassword)
    reset = await auth.call("reset_user_password", UserRefByEmail(made.email), UserPassword)
    await auth.done("DELETE", member, caller=root)
    own = {"old_password": PASSWORD, "new_password": "Changed-2"}
    await auth.done("PUT", "/user/password", own, caller=root)
    again = await caller(auth, await signed_in(auth, FIRST["email"], "Changed-2"))
    await auth.done("DELETE", "/user/sessions/current", caller=again)
    passwords = {PASSWORD, "Changed-1", "Changed-2", "Mistyped-1", made.password, reset.password}
    return {*passwords, *tokens_of(tokens), CLIENT["client_secret"]}


def tokens_of(answer: dict[str, Any]) -> set[str]:
    return {answer["access_token"], answer["refresh_token"]}


async def hashes(auth: Auth) -> set[str]:
    """Every hash of a secret that is stored."""
    stored = {
        "applications": "secretHash",
        "users": "passwordHash",
        "console_clients": "secretHash",
    }
    return {
        document[field]
        for collection, field in stored.items()
        async for document in auth.mongo.database[collection].find({})
    }


async def test_logs_and_events_have_no_secret(auth):
    """Every change with a secret in it is made; the log and the bus have none.

    What is on the bus is what was in the outbox, word by word.
    """
    admin = await auth.door.bus("admin")
    told: list[bytes] = []

    async def hear(message: Any) -> None:
        told.append(message.data)

    await admin.client.subscribe("event.>", cb=hear)
    await admin.client.flush()
    tenant = await auth.tenant("t2")
    await auth.call("set_limits", SetLimits("t2", {"requests": 5}), TenantLimits)
    await auth.application("kept")
    secrets = {tenant.client_secret}
    secrets |= await change_applications(auth)
    secrets |= await change_people(auth)
    secrets |= await hashes(auth)
    await admin.client.flush()
    await admin.drain()

    since = {"object.id": {"$ne": "default"}}  # the tenant that was there before
    entries = await auth.mongo.database["audit"].find(since).to_list(None)
    texts = [*map(str, entries), *(each.decode() for each in told)]
    assert told_actions() <= {entry["action"] for entry in entries}
    assert len(told) == len(entries) > 15
    assert not await auth.mongo.database["outbox"].count_documents({})
    assert len(secrets) > 12
    assert not [(secret, text) for secret in secrets for text in texts if secret in text]
    assert FIRST["email"] in str(entries)
