"""One's own sessions: listed with where they began, and ended one by one."""

import dataclasses

import httpx
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.telemetry import Telemetry
from services.auth.app import build_app
from tests.integration.auth.people import (
    PASSWORD,
    add_user,
    caller,
    first_user,
    post,
    refresh,
    register,
    sign_in,
    signed_in,
)

PATH = "/user/sessions"
OWN_CLIENT = {"client_id": "thingway-console"}


async def test_sessions_say_where_and_when_they_began_and_which_one_asks(auth):
    """The one that asks comes first; a refresh keeps the session and renews it."""
    await register(auth)
    old = await signed_in(auth, address="192.0.2.1")
    here = await caller(auth, await signed_in(auth, address="192.0.2.2"))

    again = await refresh(auth, old["refresh_token"])
    first, second = await auth.done("GET", PATH, caller=here)

    assert (first["session_id"], first["current"]) == (here.family, True)
    assert first["address"] == "192.0.2.2"
    assert first["user_agent"].startswith("python-httpx")
    assert not second["current"]
    assert int(second["started_at"]) <= int(second["renewed_at"]) < int(second["ends_at"])
    assert int(second["renewed_at"]) >= int(first["renewed_at"])
    assert again.status_code == 200


async def test_a_session_that_is_ended_has_no_tokens_and_others_go_on(auth):
    """Tokens and live updates end immediately, and the end is audited."""
    await register(auth)
    lost, kept = await signed_in(auth), await signed_in(auth)
    there, here = await caller(auth, lost), await caller(auth, kept)
    page = await auth.done("GET", "/mqtt/web/credentials", caller=there)

    await auth.done("DELETE", f"{PATH}/{there.family}", caller=here)

    assert await auth.principal(lost["access_token"]) is None
    assert (await refresh(auth, lost["refresh_token"])).status_code == 401
    assert await auth.principal(kept["access_token"])
    assert [one["session_id"] for one in await auth.done("GET", PATH, caller=here)] == [here.family]
    assert not [key async for key in auth.redis.scan_iter(f"*{there.family}*")]
    assert not [key async for key in auth.redis.scan_iter("tw:live:*")], page["client_id"]
    entry = await auth.entry(object_type="session", action="ended")
    assert entry["actor"]["id"] == here.subject


async def test_signing_out_ends_the_session_that_asks(auth):
    """Under the name `current`."""
    await register(auth)
    tokens = await signed_in(auth)

    await auth.done("DELETE", f"{PATH}/current", caller=await caller(auth, tokens))

    assert await auth.principal(tokens["access_token"]) is None


async def test_sessions_of_others_are_neither_listed_nor_ended(auth):
    """They are answered like those that do not exist."""
    boss = await first_user(auth)
    await add_user(auth, boss)
    other = await caller(auth, await signed_in(auth, "second@example.com", PASSWORD))

    [own] = await auth.done("GET", PATH, caller=other)

    assert own["session_id"] == other.family
    for session in (boss.family, "no-such-session"):
        await auth.refused(404, "DELETE", f"{PATH}/{session}", caller=other, field="session_id")
    assert len(await auth.done("GET", PATH, caller=boss)) == 1


async def test_a_new_password_leaves_no_session(auth):
    """The stored sessions are deleted with their tokens."""
    user = await first_user(auth)
    change = {"old_password": PASSWORD, "new_password": f"{PASSWORD}2"}

    await auth.done("PUT", "/user/password", change, caller=user)

    assert await auth.done("GET", PATH, caller=user) == []
    assert not [key async for key in auth.redis.scan_iter("tw:login:*")]


async def test_without_a_console_its_public_client_is_rejected(auth):
    """It gets no tokens, neither by password nor by an earlier refresh token. Other clients do."""
    await register(auth)
    tokens = (await sign_in(auth, **OWN_CLIENT)).json()["data"]
    app = build_app(
        dataclasses.replace(auth.settings, console="off"),
        auth.mongo,
        auth.redis,
        auth.bus,
        Telemetry(None, MeterProvider()),
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://auth"
    ) as http:
        closed = dataclasses.replace(auth, http=http)
        by_password = await sign_in(closed, **OWN_CLIENT)
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        by_refresh = await post(closed, "/oauth2/token", data={**form, **OWN_CLIENT})
        other = await sign_in(closed)

    assert (by_password.status_code, by_refresh.status_code) == (401, 401)
    assert "invalid_client" in by_password.text
    assert other.status_code == 200
