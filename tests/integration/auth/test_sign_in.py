"""`POST /oauth2/token`: people sign in, stay signed in, and guessers are slowed down."""

import asyncio
import base64

import pytest
from argon2 import PasswordHasher

from libs.common.identity import Principal, PrincipalKind
from services.auth import passwords
from services.auth.passwords import (
    ACCOUNT_FAILURE_BURST,
    ADDRESS_FAILURE_BURST,
    MAX_WAITING_LOGINS_PER_TENANT,
    PasswordHasherPool,
)
from services.auth.tokens.writer import TokenRejection, TokenWriter
from tests.integration.auth.people import (
    CLIENT,
    FIRST,
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

FORM = "application/x-www-form-urlencoded"


async def test_tokens_are_at_top_level_and_in_the_data_of_the_envelope(auth):
    """Old clients read the one, consoles the other; nobody may keep a copy."""
    await register(auth)

    answer = await sign_in(auth)

    content = answer.json()
    data = content.pop("data")
    assert answer.headers["cache-control"] == "no-store"
    assert (content.pop("status"), len(content.pop("request_id"))) == ("Success", 32)
    assert content == data
    assert (data["token_type"], data["expires_in"]) == ("Bearer", 86_399)
    assert len(data["access_token"]) == len(data["refresh_token"]) == 43


async def test_json_and_the_unescaped_form_of_existing_consoles_are_read(auth):
    """The `*` of the secret comes as it is."""
    await register(auth)
    text = (
        f"grant_type=password&username={FIRST['email']}&password={PASSWORD}"
        "&client_id=iab&client_secret=milesight*iab"
    )
    fields = {"grant_type": "password", "username": FIRST["email"], "password": PASSWORD, **CLIENT}

    as_form = await auth.http.post("/oauth2/token", content=text, headers={"Content-Type": FORM})
    as_json = await auth.http.post("/oauth2/token", json=fields)

    assert (as_form.status_code, as_json.status_code) == (200, 200)


async def test_the_served_console_needs_no_secret(auth):
    """It refreshes tokens without a secret, too. Every other client needs its own."""
    await register(auth)
    form = {"username": FIRST["email"], "password": PASSWORD, "client_id": "thingway-console"}

    tokens = await post(auth, "/oauth2/token", data={"grant_type": "password", **form})
    again = await post(
        auth,
        "/oauth2/token",
        data={
            "grant_type": "refresh_token",
            "refresh_token": tokens.json()["refresh_token"],
            "client_id": "thingway-console",
        },
    )
    other = await post(
        auth,
        "/oauth2/token",
        data={"grant_type": "password", **form, "client_id": CLIENT["client_id"]},
    )

    assert (tokens.status_code, again.status_code, other.status_code) == (200, 200, 401)


async def test_a_token_stands_for_its_user(auth):
    """The address in any case signs in the user of the tenant; its first one is super-admin."""
    await register(auth)

    principal = await caller(auth, await signed_in(auth, "fIRST@example.COM"))

    assert (principal.kind, principal.tenant, principal.name) == (
        PrincipalKind.USER,
        "default",
        FIRST["email"],
    )
    assert principal.super_admin


async def test_a_hash_of_old_parameters_is_renewed_by_a_log_in(auth):
    """The password goes on opening, and the tokens of before go on."""
    await register(auth)
    tokens = await signed_in(auth)
    users = auth.mongo.database["users"]
    weaker = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    await users.update_one({}, {"$set": {"passwordHash": weaker}})

    await signed_in(auth)

    renewed = (await users.find_one())["passwordHash"]
    assert not passwords._hasher.check_needs_rehash(renewed)
    assert (await sign_in(auth)).status_code == 200
    assert await auth.principal(tokens["access_token"]) is not None


async def test_a_second_refresh_within_a_minute_gets_the_same_pair(auth):
    """Two tabs of a console send the same refresh token, and both stay signed in."""
    await register(auth)
    first = await signed_in(auth)

    second = (await refresh(auth, first["refresh_token"])).json()["data"]
    again = (await refresh(auth, first["refresh_token"])).json()["data"]

    assert {**again, "expires_in": 0} == {**second, "expires_in": 0}
    assert 0 <= second["expires_in"] - again["expires_in"] <= 30
    assert (await auth.principal(again["access_token"])).kind is PrincipalKind.USER
    assert (await refresh(auth, again["refresh_token"])).status_code == 200


async def test_simultaneous_refreshes_of_a_console_get_one_pair(auth):
    """Nothing new is issued for the late ones, and the log-in goes on."""
    await register(auth)
    first = await signed_in(auth)

    answers = await asyncio.gather(*(refresh(auth, first["refresh_token"]) for _ in range(8)))

    [token] = {answer.json()["data"]["refresh_token"] for answer in answers}
    assert (await refresh(auth, token)).status_code == 200


async def test_a_repeated_refresh_leaves_no_token_readable_in_redis(auth):
    """The pair is kept for a minute, under a key that only the used token yields."""
    await register(auth)
    first = await signed_in(auth)
    second = (await refresh(auth, first["refresh_token"])).json()["data"]

    [kept] = [key async for key in auth.redis.scan_iter("tw:reissue:*")]
    value = await auth.redis.get(kept)

    assert 0 < await auth.redis.ttl(kept) <= 60
    assert first["refresh_token"].encode() not in kept
    assert second["access_token"].encode() not in base64.urlsafe_b64decode(value)


async def _reuse_after_the_grace_period(auth, first, second):
    for key in [key async for key in auth.redis.scan_iter("tw:reissue:*")]:
        await auth.redis.delete(key)


async def _reuse_after_the_next_refresh(auth, first, second):
    assert (await refresh(auth, second["refresh_token"])).status_code == 200


@pytest.mark.parametrize("between", [_reuse_after_the_grace_period, _reuse_after_the_next_refresh])
async def test_any_other_second_use_of_a_refresh_token_ends_the_family(auth, between):
    """Both the thief and the owner of a token lose the session."""
    await register(auth)
    first, other = await signed_in(auth), await signed_in(auth)
    second = (await refresh(auth, first["refresh_token"])).json()["data"]
    await between(auth, first, second)

    reused = await refresh(auth, first["refresh_token"])

    assert (reused.status_code, reused.json()["error_code"]) == (401, "authentication_failed")
    assert reused.json()["error_message"].startswith("invalid_grant:")
    assert await auth.principal(second["access_token"]) is None
    assert (await refresh(auth, second["refresh_token"])).status_code == 401
    assert await auth.principal(other["access_token"]) is not None


async def _end_the_session(auth, principal):
    await auth.done("DELETE", "/user/sessions/current", caller=principal)


async def _change_the_password(auth, principal):
    body = {"old_password": PASSWORD, "new_password": "Anoth3r-one"}
    await auth.done("PUT", "/user/password", body, caller=principal)


@pytest.mark.parametrize("revoke", [_end_the_session, _change_the_password])
async def test_a_repeated_refresh_does_not_revive_a_revoked_log_in(auth, revoke):
    """A log-out and a new password end the pair that could have been given again."""
    await register(auth)
    first = await signed_in(auth)
    second = (await refresh(auth, first["refresh_token"])).json()["data"]
    await revoke(auth, await caller(auth, second))

    again = await refresh(auth, first["refresh_token"])

    assert again.status_code == 401
    assert await auth.principal(second["access_token"]) is None
    assert not [key async for key in auth.redis.scan_iter("tw:reissue:*")]


async def test_a_pair_is_not_repeated_under_a_raised_generation(auth):
    """A refresh that read the user before a new password was set gets nothing after it."""
    writer = TokenWriter(auth.redis, access_life=60, refresh_life=60, reuse_grace=60)
    user = Principal(kind=PrincipalKind.USER, tenant="default", subject="7")
    first = await writer.issue(user, 1)
    holder = await writer.find_principal(first.refresh)
    await writer.rotate(first.refresh, holder, 1)

    await writer.revoke_older_tokens(PrincipalKind.USER, "7", 2)

    assert await writer.rotate(first.refresh, holder, 1) is TokenRejection.STALE
    assert await writer.rotate(first.refresh, holder, 2) is TokenRejection.UNKNOWN


async def test_ten_failures_cost_a_pause_and_a_right_password_forgets_them(auth):
    """The eleventh attempt is 429 with Retry-After. A success resets the count."""
    await register(auth)
    for _ in range(2):
        for _ in range(ACCOUNT_FAILURE_BURST - 1):
            assert (await sign_in(auth, password="Wr0ng-one")).status_code == 401
        assert (await sign_in(auth)).status_code == 200
    for _ in range(ACCOUNT_FAILURE_BURST):
        assert (await sign_in(auth, password="Wr0ng-one")).status_code == 401

    refused = await sign_in(auth, address="198.51.100.9")

    assert (refused.status_code, refused.json()["error_code"]) == (429, "request_too_frequently")
    assert 1 <= int(refused.headers["retry-after"]) <= 90


async def test_simultaneous_attempts_do_not_bypass_the_throttle(auth):
    """Ten of forty attempts are checked."""
    await register(auth)

    answers = await asyncio.gather(*(sign_in(auth, password="Wr0ng-one") for _ in range(40)))

    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(401), statuses.count(429)) == (
        ACCOUNT_FAILURE_BURST,
        40 - ACCOUNT_FAILURE_BURST,
    )


async def test_an_address_that_guesses_everywhere_is_slowed_down(auth, monkeypatch):
    """A hundred accounts with one guess each are as bad as one account with a hundred."""

    async def wrong(*_: object) -> bool:
        return False

    monkeypatch.setattr(PasswordHasherPool, "matches", wrong)
    statuses = [
        (await sign_in(auth, f"user{n}@example.com", address="203.0.113.5")).status_code
        for n in range(ADDRESS_FAILURE_BURST + 20)
    ]
    elsewhere = await sign_in(auth, "user1@example.com", address="203.0.113.6")

    assert statuses[:ADDRESS_FAILURE_BURST] == [401] * ADDRESS_FAILURE_BURST
    assert 429 in statuses[ADDRESS_FAILURE_BURST:]
    assert elsewhere.status_code == 401


async def test_a_storm_of_right_passwords_is_let_in(auth):
    """Fifty at once of one account, from one address."""
    await register(auth)

    answers = await asyncio.gather(*(sign_in(auth) for _ in range(50)))

    assert {answer.status_code for answer in answers} == {200}


async def test_sign_ins_beyond_the_queue_are_rejected(auth, monkeypatch):
    """They get 429 and Retry-After immediately, while other tenants sign in."""
    await register(auth)
    await auth.tenant("other")
    await register(auth, "other")
    go_on, matches = asyncio.Event(), PasswordHasherPool.matches

    async def slow(*_: object) -> bool:
        await go_on.wait()
        return False

    monkeypatch.setattr(PasswordHasherPool, "matches", slow)
    storm = [
        asyncio.create_task(sign_in(auth, password="Wr0ng-one"))
        for _ in range(MAX_WAITING_LOGINS_PER_TENANT + 9)
    ]
    done, _ = await asyncio.wait(storm, return_when=asyncio.FIRST_COMPLETED)
    monkeypatch.setattr(PasswordHasherPool, "matches", matches)
    calm = await sign_in(auth, tenant="other")
    go_on.set()

    statuses = [answer.status_code for answer in await asyncio.gather(*storm)]
    assert calm.status_code == 200
    assert set(statuses) == {401, 429}
    assert all(int(task.result().headers["retry-after"]) >= 1 for task in done)


async def test_no_answer_reveals_whether_an_account_exists(auth):
    """Unknown, mistyped, disabled and foreign accounts get one answer and one throttle."""
    admin = await first_user(auth)
    user_id = await add_user(auth, admin)
    await auth.done("PUT", f"/user/members/{user_id}/status", {"enabled": False}, caller=admin)
    answers = [
        await sign_in(auth, "nobody@example.com"),
        await sign_in(auth, password="Wr0ng-one"),
        await sign_in(auth, "second@example.com"),
        await sign_in(auth, tenant="no-such-tenant"),
    ]

    told = [
        (answer.status_code, answer.json()["error_code"], answer.json()["error_message"])
        for answer in answers
    ]
    assert set(told) == {(401, "authentication_failed", "invalid_request:Bad credentials")}
    for _ in range(ACCOUNT_FAILURE_BURST):
        last = await sign_in(auth, "nobody@example.com")
    assert last.status_code == 429


async def test_a_tenants_own_client_signs_into_that_tenant_only(auth):
    """Without a header into its own; another's header is refused."""
    made = await auth.tenant("other")
    await register(auth, "other")
    await register(auth, password="Anoth3r-one")
    client = {"client_id": made.client_id, "client_secret": made.client_secret}

    tokens = await signed_in(auth, **client)
    foreign = await sign_in(auth, password="Anoth3r-one", tenant="default", **client)

    assert (await auth.principal(tokens["access_token"])).tenant == "other"
    assert (foreign.status_code, foreign.json()["detail_message"]) == (401, "TENANT_ID")
    assert (await refresh(auth, tokens["refresh_token"], tenant="default")).status_code == 401
    assert (await refresh(auth, tokens["refresh_token"])).status_code == 200


async def test_the_configured_client_signs_into_any_tenant(auth):
    """The header names it; a refresh token knows its own."""
    await auth.tenant("other")
    await register(auth, "other")

    tokens = await signed_in(auth, tenant="other")

    assert (await auth.principal(tokens["access_token"])).tenant == "other"
    assert (await sign_in(auth)).status_code == 401


async def test_the_refresh_tokens_of_applications_are_not_for_people(auth):
    """Each endpoint knows its own."""
    tokens = await auth.log_in(await auth.application())

    assert (await refresh(auth, tokens["refresh_token"])).status_code == 401


FAULTS = [
    ({"grant_type": None}, "invalid_request:grant_type is null.", "grant_type"),
    ({"grant_type": "client_credentials"}, "unsupported_grant_type:", "grant_type"),
    ({"username": None}, "invalid_request:username is null.", "username"),
    ({"password": None}, "invalid_request:password is null.", "password"),
    ({"password": ""}, "invalid_request:password must not be blank.", "password"),
    ({"password": 7}, "invalid_request:password must be a string.", "password"),
    ({"client_id": None}, "invalid_request:client_id is null.", "client_id"),
    ({"client_id": "other"}, "invalid_client:", "client_id"),
    ({"client_secret": "wrong"}, "invalid_client:", "client_id"),
    ({"username": "x" * 300}, "invalid_request:Bad credentials", None),
    ({"username": {"$ne": ""}}, "invalid_request:username must be a string.", "username"),
    (
        {"grant_type": "refresh_token"},
        "invalid_request:refresh_token is null.",
        "refresh_token",
    ),
    ({"grant_type": "refresh_token", "refresh_token": "x"}, "invalid_grant:", "refresh_token"),
]


async def test_every_fault_is_a_401_that_names_the_field(auth):
    """As OAuth codes them and existing consoles read them."""
    fields = {"grant_type": "password", "username": "a@b.de", "password": PASSWORD, **CLIENT}
    for change, message, field in FAULTS:
        body = {name: value for name, value in (fields | change).items() if value is not None}

        answer = await post(auth, "/oauth2/token", json=body)

        content = answer.json()
        assert (answer.status_code, content["error_code"]) == (401, "authentication_failed")
        assert content["error_message"].startswith(message), (change, content)
        assert content.get("detail_message") == field


UNREADABLE = [
    (b"{", "application/json", 401),
    (b"[]", "application/json", 401),
    (b"grant_type=%zz", FORM, 401),
    (b"username=a&username=b", FORM, 401),
    (b"\xff", FORM, 401),
    (b"", FORM, 401),
    (b"a=" + b"b" * 20_000, FORM, 413),
    (b"grant_type=password", "text/plain", 415),
]


async def test_an_unreadable_body_is_refused(auth):
    """Broken, too large, of another type."""
    for body, content_type, status in UNREADABLE:
        answer = await auth.http.post(
            "/oauth2/token", content=body, headers={"Content-Type": content_type}
        )

        assert (answer.status_code, answer.json()["status"]) == (status, "Failed"), body


async def test_a_tenant_that_cannot_be_is_named(auth):
    """The header is looked at before anything else."""
    answer = await sign_in(auth, tenant="no such")

    assert (answer.status_code, answer.json()["detail_message"]) == (400, "TENANT_ID")
