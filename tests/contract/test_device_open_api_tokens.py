"""The token endpoint and the ways to show a token."""

import asyncio
import base64
from collections.abc import Awaitable, Callable

import httpx
import pytest

from tests.contract.client import API, Api, accepted, refused
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

FIELDS = {"access_token", "refresh_token", "expires_in", "refresh_token_expires_in"}
SEARCH = {"pageSize": 1, "pageNumber": 1}
FORMS = ["application/x-www-form-urlencoded", "x-www-form-urlencoded"]


async def _works(api: Api, token: str) -> bool:
    answer = await api.ask("POST", "/devices/search", SEARCH, token=token)
    if answer.status_code == 200:
        return True
    refused(answer, 401, code="authentication_failed")
    return False


@pytest.mark.parametrize("content_type", [*FORMS, f"{FORMS[0]}; charset=utf-8"])
async def test_a_token_is_got_by_client_credentials(api: Api, content_type: str) -> None:
    """Both spellings of the content type; the lives are whole seconds, as clients add them."""
    body = (
        f"client_id={api.client_id}&client_secret={api.client_secret}&grant_type=client_credentials"
    )
    answer = await api.http.post(
        "/oauth/token", content=body, headers={"Content-Type": content_type}
    )
    details = accepted(answer)
    assert set(details) == FIELDS
    assert type(details["expires_in"]) is int
    assert type(details["refresh_token_expires_in"]) is int
    assert 3590 <= details["expires_in"] <= 3600
    assert 2_591_990 <= details["refresh_token_expires_in"] <= 2_592_000
    assert answer.headers["cache-control"] == "no-store"
    assert await _works(api, details["access_token"])


@pytest.mark.parametrize("content_type", FORMS)
async def test_a_refresh_needs_only_the_refresh_token(api: Api, content_type: str) -> None:
    """It needs neither id nor secret. Both tokens are new, and the old access token stays valid."""
    first = await api.tokens()
    answer = await api.http.post(
        "/oauth/token",
        content=f"refresh_token={first['refresh_token']}&grant_type=refresh_token",
        headers={"Content-Type": content_type},
    )
    second = accepted(answer)
    assert set(second) == FIELDS
    assert second["access_token"] != first["access_token"]
    assert second["refresh_token"] != first["refresh_token"]
    assert await _works(api, second["access_token"])


async def test_a_refresh_token_used_twice_ends_its_family(api: Api) -> None:
    """Both descendants die, other families of the application live on."""
    other = await api.tokens()
    first = await api.tokens()
    grant = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    second = accepted(await api.grant(**grant))
    refused(await api.grant(**grant), 401, code="authentication_failed")
    assert not await _works(api, second["access_token"])
    grant["refresh_token"] = second["refresh_token"]
    refused(await api.grant(**grant), 401, code="authentication_failed")
    assert await _works(api, other["access_token"])


async def test_tokens_live_side_by_side(api: Api) -> None:
    """Clients ask anew instead of refreshing; nobody loses the token in hand."""
    pairs = await asyncio.gather(*(api.tokens() for _ in range(5)))
    assert len({pair["access_token"] for pair in pairs}) == 5
    assert all(await asyncio.gather(*(_works(api, pair["access_token"]) for pair in pairs)))


async def test_a_new_secret_ends_every_token_at_once(platform: Platform, alone: Api) -> None:
    """Done when 5: the very next call with an old token is 401, the new secret works."""
    pairs = [await alone.tokens() for _ in range(3)]
    assert all([await _works(alone, pair["access_token"]) for pair in pairs])
    made = await platform.rotate_secret(alone.id)
    for pair in pairs:
        assert not await _works(alone, pair["access_token"])
        grant = await alone.grant(grant_type="refresh_token", refresh_token=pair["refresh_token"])
        refused(grant, 401, code="authentication_failed")
    old = await alone.grant(
        grant_type="client_credentials",
        client_id=alone.client_id,
        client_secret=alone.client_secret,
    )
    refused(old, 401, code="authentication_failed")
    alone.client_secret = made["clientSecret"]
    await alone.log_in()
    assert await _works(alone, alone.token)


async def test_a_token_may_stand_in_the_query(api: Api) -> None:
    """`access_token=`; the other parameters of the operation stay what they are."""
    identity = await api.add()
    path = f"{API}/devices/{identity}/properties/history"
    query = {"pageSize": "7", "access_token": api.token}
    page = accepted(await api.http.get(path, params=query))
    assert page["pageSize"] == 7
    refused(await api.http.get(path, params={"access_token": "x"}), 401)


async def test_the_old_version_segment_is_an_alias(api: Api) -> None:
    """`v1.0` answers like `v1`."""
    identity = await api.add()
    old = accepted(await api.ask("GET", f"/device/openapi/v1.0/devices/{identity}"))
    assert old == await api.done("GET", f"/devices/{identity}")


async def test_a_client_with_an_invalid_token_gets_a_new_one_and_tries_again(
    platform: Platform, alone: Api
) -> None:
    """Three known clients do this after 401, with a lower-case scheme and their own header."""
    await platform.rotate_secret(alone.id)
    alone.client_secret = (await platform.rotate_secret(alone.id))["clientSecret"]

    async def call() -> httpx.Response:
        headers = {"Authorization": f"bearer {alone.token}", "User-Agent": "OpenAPI"}
        return await alone.ask("POST", "/devices/search", SEARCH, headers=headers)

    refused(await call(), 401)
    await alone.log_in()
    assert accepted(await call()) == {"pageSize": 1, "pageNumber": 1, "total": 0, "content": []}


def _basic(api: Api) -> str:
    return base64.b64encode(f"{api.client_id}:{api.client_secret}".encode()).decode()


WRONG: list[Callable[[Api], dict[str, str]]] = [
    lambda _: {},
    lambda _: {"Authorization": ""},
    lambda _: {"Authorization": "Bearer"},
    lambda _: {"Authorization": "Bearer ."},
    lambda _: {"Authorization": "Bearer not-a-token"},
    lambda _: {"Authorization": "Bearer " + "x" * 5000},
    lambda api: {"Authorization": f"Token {api.token}"},
    lambda api: {"Authorization": f"Bearer {api.token}x"},
    lambda api: {"Authorization": f"Basic {_basic(api)}"},
    lambda api: {"access_token": api.token},
]


@pytest.mark.parametrize("headers", WRONG)
async def test_a_wrong_token_is_401(api: Api, headers: Callable[[Api], dict[str, str]]) -> None:
    """Missing, broken, in a scheme that is not ours: clients log in again on 401 only."""
    answer = await api.http.post(f"{API}/devices/search", json=SEARCH, headers=headers(api))
    refused(answer, 401, code="authentication_failed")


async def test_a_refresh_token_is_no_access_token(api: Api) -> None:
    """Each token is good for its own purpose only."""
    pair = await api.tokens()
    assert not await _works(api, pair["refresh_token"])
    grant = api.grant(grant_type="refresh_token", refresh_token=pair["access_token"])
    refused(await grant, 401, code="authentication_failed")


async def test_a_deleted_application_is_401(platform: Platform, alone: Api) -> None:
    """Its tokens and its credentials end with it."""
    await platform.delete_application(alone.id)
    assert not await _works(alone, alone.token)
    attempt: Awaitable[httpx.Response] = alone.grant(
        grant_type="client_credentials",
        client_id=alone.client_id,
        client_secret=alone.client_secret,
    )
    refused(await attempt, 401, code="authentication_failed")
