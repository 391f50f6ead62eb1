"""Both grants through HTTP, and what ends a token."""

import asyncio
import hashlib

import pytest

from libs.common.contracts.auth import ApplicationRef, ApplicationSecret, Done
from libs.common.errors import Unavailable
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.tokens import TokenReader
from services.auth.tokens.writer import TokenRejection, TokenWriter


async def test_credentials_give_the_documented_answer(auth):
    """The response has the envelope and four fields, with integer lifetimes."""
    application = await auth.application()

    answer = await auth.http.post(
        "/oauth/token",
        data={
            "grant_type": "client_credentials",
            "client_id": application.client_id,
            "client_secret": application.client_secret,
        },
    )

    body = answer.json()
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert sorted(body) == ["data", "requestId", "status"]
    assert body["status"] == "Success"
    assert len(body["requestId"]) == 32
    assert sorted(body["data"]) == [
        "access_token",
        "expires_in",
        "refresh_token",
        "refresh_token_expires_in",
    ]
    assert (body["data"]["expires_in"], body["data"]["refresh_token_expires_in"]) == (3599, 2591999)


async def test_a_token_stands_for_its_application(auth):
    """The gateway reads the principal; a refresh token is no access token."""
    application = await auth.application("meter reader")
    tokens = await auth.log_in(application)

    principal = await auth.principal(tokens["access_token"])

    assert principal == Principal(
        kind=PrincipalKind.APPLICATION,
        tenant="default",
        subject=str(application.application_id),
        name="meter reader",
        family=principal.family,
    )
    assert await auth.principal(tokens["refresh_token"]) is None


async def test_redis_and_mongodb_contain_no_secret(auth):
    """The stores contain neither tokens nor client secrets."""
    application = await auth.application()
    tokens = await auth.log_in(application)

    keys = [key.decode() async for key in auth.redis.scan_iter("*")]
    document = str(await auth.mongo.database["applications"].find_one({}))

    assert not any(tokens[name] in key for key in keys for name in ("access_token",))
    digest = hashlib.sha256(tokens["access_token"].encode()).hexdigest()
    assert f"tw:token:{digest}" in keys
    assert application.client_secret not in document


async def test_several_tokens_live_side_by_side(auth):
    """Logging in again leaves earlier tokens alone."""
    application = await auth.application()

    every = await asyncio.gather(*(auth.log_in(application) for _ in range(5)))

    found = await TokenReader(auth.redis).principals([each["access_token"] for each in every])
    assert [each.application_id for each in found] == [application.application_id] * 5


async def test_a_refresh_gives_new_tokens_and_uses_the_old_one_up(auth):
    """The access token goes on until it expires; the used refresh token is dead."""
    first = await auth.log_in(await auth.application())

    second = (await auth.refresh(first["refresh_token"])).json()["data"]

    assert second["refresh_token"] != first["refresh_token"]
    assert await auth.principal(first["access_token"])
    assert await auth.principal(second["access_token"])
    assert (await auth.refresh(second["refresh_token"])).status_code == 200


async def test_a_refresh_token_used_twice_revokes_its_family_and_no_other(auth):
    """All tokens of the family are revoked; another family stays valid."""
    application = await auth.application()
    first, other = await auth.log_in(application), await auth.log_in(application)
    second = (await auth.refresh(first["refresh_token"])).json()["data"]

    again = await auth.refresh(first["refresh_token"])

    assert (again.status_code, again.json()["errCode"]) == (401, "authentication_failed")
    assert await auth.principal(first["access_token"]) is None
    assert await auth.principal(second["access_token"]) is None
    assert (await auth.refresh(second["refresh_token"])).status_code == 401
    assert await auth.principal(other["access_token"])
    assert (await auth.refresh(other["refresh_token"])).status_code == 200


async def test_one_of_simultaneous_refreshes_succeeds(auth):
    """Two uses of one token cannot both return valid tokens."""
    tokens = await auth.log_in(await auth.application())

    answers = await asyncio.gather(*(auth.refresh(tokens["refresh_token"]) for _ in range(8)))

    granted = [answer.json()["data"] for answer in answers if answer.status_code == 200]
    assert len(granted) == 1
    assert await auth.principal(granted[0]["access_token"]) is None


@pytest.mark.parametrize("field", ["client_id", "client_secret"])
async def test_credentials_that_come_along_are_checked(auth, field):
    """Those of another are refused without using the token up; the right ones pass."""
    application, other = await auth.application(), await auth.application("other")
    tokens = await auth.log_in(application)

    foreign = await auth.refresh(tokens["refresh_token"], **{field: getattr(other, field)})
    own = await auth.refresh(tokens["refresh_token"], **{field: getattr(application, field)})

    assert (foreign.status_code, own.status_code) == (401, 200)


@pytest.mark.parametrize("operation", ["rotate_application_secret", "delete_application"])
async def test_regenerating_and_deleting_kill_every_token_at_once(auth, operation):
    """Access and refresh tokens of all families, and the old secret; other applications live."""
    application, other = await auth.application(), await auth.application("other")
    every = [await auth.log_in(application) for _ in range(3)]
    spared = await auth.log_in(other)
    answer = ApplicationSecret if operation.startswith("rotate") else Done

    await auth.call(operation, ApplicationRef(application.application_id), answer)

    found = await TokenReader(auth.redis).principals([each["access_token"] for each in every])
    assert found == [None, None, None]
    assert (await auth.refresh(every[0]["refresh_token"])).status_code == 401
    assert await auth.principal(spared["access_token"])
    credentials = {"client_id": application.client_id, "client_secret": application.client_secret}
    refused = await auth.http.post(
        "/oauth/token", data={"grant_type": "client_credentials", **credentials}
    )
    assert refused.status_code == 401


async def test_a_regenerated_secret_logs_in(auth):
    """The new secret works, and its tokens survive the sweep that applies revocations again."""
    application = await auth.application()
    await auth.log_in(application)
    reference = ApplicationRef(application.application_id)
    rotated = await auth.call("rotate_application_secret", reference, ApplicationSecret)

    tokens = await auth.log_in(rotated)
    async with asyncio.timeout(30):
        while await auth.mongo.database["revocations"].count_documents({}):
            await asyncio.sleep(0.1)

    assert rotated.client_id == application.client_id
    assert await auth.principal(tokens["access_token"])


async def test_no_log_in_survives_a_regeneration_that_it_races_with(auth):
    """Tokens issued with the old secret are invalid after the response."""
    application = await auth.application()
    credentials = {"client_id": application.client_id, "client_secret": application.client_secret}
    form = {"grant_type": "client_credentials", **credentials}

    async def hammer(granted: list[str]) -> None:
        while True:
            answer = await auth.http.post("/oauth/token", data=form)
            if answer.status_code != 200:
                return
            granted.append(answer.json()["data"]["access_token"])

    granted: list[str] = []
    clients = [asyncio.ensure_future(hammer(granted)) for _ in range(8)]
    while len(granted) < 20:
        await asyncio.sleep(0)
    reference = ApplicationRef(application.application_id)
    await auth.call("rotate_application_secret", reference, ApplicationSecret)
    await asyncio.gather(*clients)

    found = await TokenReader(auth.redis).principals(granted)
    assert found == [None] * len(granted)


async def test_tokens_cannot_be_issued_for_a_secret_that_was_checked_too_early(auth):
    """The script refuses a generation that Redis has passed."""
    writer = TokenWriter(auth.redis, access_life=60, refresh_life=60)
    caller = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="7")

    await writer.revoke_older_tokens(PrincipalKind.APPLICATION, "7", generation=2)

    assert await writer.issue(caller, generation=1) is TokenRejection.STALE


async def test_a_log_in_makes_good_a_revocation_that_redis_lost(auth):
    """A higher generation deletes older tokens without a revocation."""
    writer = TokenWriter(auth.redis, access_life=60, refresh_life=60)
    caller = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="7")
    old = await writer.issue(caller, generation=1)

    new = await writer.issue(caller, generation=2)

    assert await auth.principal(old.access) is None
    assert await auth.principal(new.access)


async def test_the_oldest_family_gives_way_beyond_the_limit(auth, monkeypatch):
    """A client that logs in without end cannot fill Redis."""
    monkeypatch.setattr("services.auth.tokens.writer.MAX_FAMILIES_PER_SUBJECT", 3)
    writer = TokenWriter(auth.redis, access_life=60, refresh_life=60)
    caller = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="7")

    pairs = []
    for _ in range(5):
        pairs.append(await writer.issue(caller, 1))
        await asyncio.sleep(0.002)

    found = await TokenReader(auth.redis).principals([pair.access for pair in pairs])
    assert [each is not None for each in found] == [False, False, True, True, True]


async def test_tokens_expire(auth):
    """Redis forgets an access token when its life is over."""
    writer = TokenWriter(auth.redis, access_life=1, refresh_life=60)
    caller = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="7")
    pair = await writer.issue(caller, 1)

    await asyncio.sleep(1.1)

    assert await auth.principal(pair.access) is None
    assert await writer.find_principal(pair.refresh) == await _held(caller, writer, pair)


async def _held(caller, writer, pair):
    holder = await writer.find_principal(pair.refresh)
    return Principal(caller.kind, caller.tenant, caller.subject, "", holder.family)


async def test_losing_redis_means_logging_in_again(auth):
    """Old tokens are unknown, and credentials give new ones."""
    application = await auth.application()
    tokens = await auth.log_in(application)

    await auth.redis.flushdb()

    assert await auth.principal(tokens["access_token"]) is None
    assert (await auth.refresh(tokens["refresh_token"])).status_code == 401
    assert await auth.principal((await auth.log_in(application))["access_token"])


async def test_look_ups_of_one_turn_make_one_round_trip(auth, monkeypatch):
    """Many requests at once are one MGET, each with its own answer."""
    application = await auth.application()
    tokens = [(await auth.log_in(application))["access_token"] for _ in range(3)]
    reader, asked = TokenReader(auth.redis), []
    ask = auth.redis.mget
    monkeypatch.setattr(auth.redis, "mget", lambda *keys: asked.append(keys) or ask(*keys))

    found = await asyncio.gather(*(reader.principal(token) for token in [*tokens, "unknown"]))

    assert [each is not None for each in found] == [True, True, True, False]
    assert len(asked) == 1


async def test_a_burst_of_log_ins_is_served(auth):
    """More at once than there are connections to Redis wait their turn."""
    application = await auth.application()

    every = await asyncio.gather(*(auth.log_in(application) for _ in range(200)))

    assert len({each["access_token"] for each in every}) == 200


async def test_without_redis_the_answer_is_503(auth):
    """The response contains Retry-After."""
    application = await auth.application()
    credentials = {"client_id": application.client_id, "client_secret": application.client_secret}
    pool = auth.redis.connection_pool
    await pool.disconnect()
    pool.reset()
    pool.connection_kwargs["port"] = 1

    answer = await auth.http.post(
        "/oauth/token", data={"grant_type": "client_credentials", **credentials}
    )

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert (await auth.http.get("/readyz")).json()["redis"] != "ok"
    with pytest.raises(Unavailable):
        await auth.call(
            "rotate_application_secret",
            ApplicationRef(application.application_id),
            ApplicationSecret,
        )
