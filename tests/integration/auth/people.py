"""People at the console: they register, sign in, and their tokens are looked at."""

from typing import Any

import httpx

from libs.common.http.request import CLIENT_ADDRESS_HEADER
from libs.common.identity import Principal
from libs.common.identity.access import AccessReader
from tests.integration.auth.conftest import (
    ADDRESS,
    CONSOLE_CLIENT_ID,
    CONSOLE_CLIENT_SECRET,
    Auth,
)

PASSWORD = "Passw0rd!"
CLIENT = {"client_id": CONSOLE_CLIENT_ID, "client_secret": CONSOLE_CLIENT_SECRET}
FIRST = {"email": "First@Example.com", "nickname": "First", "password": PASSWORD}


async def post(
    auth: Auth, path: str, *, tenant: str = "", address: str = ADDRESS, **body: Any
) -> httpx.Response:
    """An operation that needs no token, as it comes through the gateway."""
    headers = {CLIENT_ADDRESS_HEADER: address} | ({"TENANT_ID": tenant} if tenant else {})
    return await auth.http.post(path, headers=headers, **body)


async def register(auth: Auth, tenant: str = "", **fields: str) -> httpx.Response:
    """`POST /user/register`."""
    return await post(auth, "/user/register", tenant=tenant, json=FIRST | fields)


async def sign_in(
    auth: Auth,
    email: str = FIRST["email"],
    password: str = PASSWORD,
    *,
    tenant: str = "",
    address: str = ADDRESS,
    **fields: str,
) -> httpx.Response:
    """`POST /oauth2/token` with a password, as the console sends it."""
    form = {"grant_type": "password", "username": email, "password": password, **CLIENT, **fields}
    return await post(auth, "/oauth2/token", tenant=tenant, address=address, data=form)


async def refresh(auth: Auth, token: str, *, tenant: str = "", **fields: str) -> httpx.Response:
    """`POST /oauth2/token` with a refresh token."""
    form = {"refresh_token": token, "grant_type": "refresh_token", **CLIENT, **fields}
    return await post(auth, "/oauth2/token", tenant=tenant, data=form)


async def signed_in(auth: Auth, *words: str, **more: str) -> dict[str, Any]:
    """The tokens of a log-in that must succeed."""
    answer = await sign_in(auth, *words, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


async def caller(auth: Auth, tokens: dict[str, Any]) -> Principal:
    """The principal of a user's access token, completed as the gateway does."""
    principal = await auth.principal(tokens["access_token"])
    return await AccessReader(auth.rpc).add_access(principal)


async def first_user(auth: Auth, tenant: str = "") -> Principal:
    """Register a tenant's first user and sign it in."""
    answer = await register(auth, tenant)
    assert answer.status_code == 200, answer.text
    return await caller(auth, await signed_in(auth, tenant=tenant))


async def add_user(auth: Auth, by: Principal, email: str = "second@example.com") -> int:
    """Add a user and return its id."""
    fields = {"email": email, "nickname": email.partition("@")[0], "password": PASSWORD}
    await auth.done("POST", "/user/members", fields, caller=by)
    [found] = await auth.done("POST", "/user/members/search", {"keyword": email}, caller=by)
    return int(found["user_id"])
