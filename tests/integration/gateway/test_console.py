"""The management API at the door: its paths, its callers, and what they are completed with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.bus import Bus, RpcServer
from libs.common.contracts.access import Access, UserRef
from libs.common.contracts.limits import GetLimits, Limits, TenantLimits
from libs.common.errors import Unauthenticated
from libs.common.identity import PrincipalKind
from libs.common.identity.access import access_version_key
from tests.servers import Servers

from .conftest import DEVICES, Gateway, Recorder, Start

ACCESS = Access(version=3, functions=frozenset({"device.view"}), super_admin=False)


class Auth:
    """`auth` on the bus: what it says a user may do, and how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[UserRef] = []
        self.known: Access | None = ACCESS
        self.limits = Limits()

    async def access(self, user: UserRef) -> Access:
        """Answer `rpc.auth.get_access`."""
        self.asked.append(user)
        if self.known is None:
            raise Unauthenticated("the user is gone")
        return self.known

    async def tell_limits(self, _: GetLimits) -> TenantLimits:
        """Answer `rpc.auth.get_limits`."""
        return TenantLimits(self.limits)

    @contextlib.asynccontextmanager
    async def answering(self, nats_url: str) -> AsyncIterator["Auth"]:
        """Answer until the block ends."""
        bus = await Bus.connect(nats_url, name="auth")
        rpc = RpcServer(bus, "auth")
        rpc.offer("get_access", UserRef, self.access)
        rpc.offer("get_limits", GetLimits, self.tell_limits)
        await rpc.start()
        await bus.client.flush()
        try:
            yield self
        finally:
            await rpc.stop()
            await bus.drain()


@pytest.fixture
async def accounts(servers: Servers) -> AsyncIterator[Auth]:
    """`auth` as the gateway asks it."""
    async with Auth().answering(servers.nats_url) as answering:
        yield answering


async def connected(gateway: Gateway) -> None:
    """Wait until the gateway is on the bus: a device that Redis does not know is a 401 then."""
    headers = {"Authorization": f"Bearer {await gateway.token(PrincipalKind.USER)}"}
    while (await gateway.http.get("/user", headers=headers)).status_code == 503:
        await asyncio.sleep(0.01)


async def user(gateway: Gateway, version: int = 3, tenant: str = "t1") -> dict[str, str]:
    """Header fields of a user of a tenant at `version`."""
    await gateway.redis.set(access_version_key(tenant), version)
    token = await gateway.token(PrincipalKind.USER, name="a@b.example", tenant=tenant)
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("path", "service"),
    [("/user", "auth"), ("/application/7", "auth"), ("/audit/search", "auth"),
     ("/device/7", "device"), ("/entity/search", "device")],
)  # fmt: skip
async def test_user_comes_in_completed(
    gateway: Gateway, accounts: Auth, device: Recorder, auth: Recorder, path: str, service: str
) -> None:
    """The service gets the user with what it may do and the version of that, below /api/v1 too."""
    await connected(gateway)
    headers = await user(gateway)
    plain = await gateway.http.get(path, headers=headers)
    below = await gateway.http.get(f"/api/v1{path}?a=b", headers=headers)
    assert (plain.status_code, below.status_code) == (200, 200)
    seen = {"auth": auth, "device": device}[service].seen[-2:]
    assert [(one.path, one.query) for one in seen] == [(path, ""), (path, "a=b")]
    principal = gateway.verifier.verify(seen[0].headers["x-thingway-principal"])
    assert (principal.name, principal.functions, principal.super_admin, principal.access) == (
        "a@b.example", ACCESS.functions, False, 3,
    )  # fmt: skip


async def test_access_is_asked_once_for_a_version(
    gateway: Gateway, accounts: Auth, auth: Recorder
) -> None:
    """While the version stays, nobody is asked; when it grows, the next request has the new one."""
    await connected(gateway)
    headers = await user(gateway)
    accounts.asked.clear()
    for _ in range(3):
        await gateway.http.get("/user", headers=headers)
    assert len(accounts.asked) == 1
    accounts.known = Access(version=4, functions=frozenset(), super_admin=True)
    await gateway.redis.set(access_version_key("t1"), 4)
    await gateway.http.get("/user", headers=headers)
    principal = gateway.verifier.verify(auth.last.headers["x-thingway-principal"])
    assert (len(accounts.asked), principal.super_admin, principal.access) == (2, True, 4)


async def test_a_deleted_user_gets_401(gateway: Gateway, accounts: Auth, auth: Recorder) -> None:
    """The token makes no difference."""
    await connected(gateway)
    auth.seen.clear()
    headers = await user(gateway)
    accounts.known = None
    reply = await gateway.http.get("/user", headers=headers)
    assert (reply.status_code, reply.json()["error_code"]) == (401, "authentication_failed")
    assert auth.seen == []


async def test_without_auth_users_are_503(gateway: Gateway, auth: Recorder) -> None:
    """A user whose access nobody can tell does not come in."""
    reply = await gateway.http.get("/user", headers=await user(gateway))
    assert (reply.status_code, reply.json()["error_code"]) == (503, "service_unavailable")
    assert auth.seen == []


async def test_application_is_403(gateway: Gateway, auth: Recorder, device: Recorder) -> None:
    """An application's token does not open the management API."""
    for path in ("/user", "/device/search", "/api/v1/application"):
        reply = await gateway.http.post(path, headers=await gateway.bearer(), json={})
        assert (reply.status_code, reply.json()["error_code"]) == (403, "forbidden_permission")
    assert (auth.seen, device.seen) == ([], [])


async def test_no_token_is_401_in_the_consoles_envelope(gateway: Gateway, auth: Recorder) -> None:
    """Without a token, or with a wrong one, the console is told what it understands."""
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        reply = await gateway.http.get("/api/v1/user", headers=headers)
        body = reply.json()
        assert reply.status_code == 401
        assert (body["status"], body["error_code"]) == ("Failed", "authentication_failed")
        assert body["request_id"] == reply.headers["x-request-id"]
    assert auth.seen == []


@pytest.mark.parametrize("path", ["/oauth2/token", "/user/register", "/user/status"])
@pytest.mark.parametrize("prefix", ["", "/api/v1"])
async def test_signing_in_is_open(gateway: Gateway, auth: Recorder, path: str, prefix: str) -> None:
    """A token is neither needed nor read where people sign in."""
    headers = {"Authorization": "Bearer long-gone"}
    reply = await gateway.http.post(prefix + path, headers=headers, json={})
    assert reply.status_code == 200
    assert auth.last.path == path
    assert not auth.last.headers.keys() & {"authorization", "x-thingway-principal"}


async def test_signing_in_is_limited_more(start: Start, auth: Recorder) -> None:
    """One address may not try credentials without end, whatever the path's spelling."""
    async with start(token_rate=0.001, token_burst=2) as gateway:
        paths = ("/oauth2/token", "/api/v1/oauth2/token", "/user/register")
        replies = [await gateway.http.post(path, json={}) for path in paths]
    assert [reply.status_code for reply in replies] == [200, 200, 429]
    assert replies[-1].json()["error_code"] == "request_too_frequently"


async def test_application_calls_from_its_networks_only(start: Start, device: Recorder) -> None:
    """With an allow-list an application is refused from any other address."""
    async with start(trusted_proxies="127.0.0.1") as gateway:
        token = await gateway.token(networks=("192.0.2.0/24", "2001:db8::/32"))

        async def call(address: str) -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": address}
            reply = await gateway.http.get(f"{DEVICES}/5", headers=headers)
            return reply.status_code, reply.json().get("errCode")

        assert await call("192.0.2.9") == (200, None)
        assert await call("2001:db8::1") == (200, None)
        seen = len(device.seen)
        assert await call("198.51.100.9") == (403, "forbidden_permission")
        assert len(device.seen) == seen
