"""Who holds too much is refused alone: requests, long polls, callers without a login."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
import pytest

from libs.common.bus import Bus
from libs.common.contracts.limits import Limits, UsageRequest
from libs.common.identity import PrincipalKind
from libs.common.identity.access import access_version_key
from libs.common.limits.tenants import UsageCollector
from tests.servers import Servers

from .conftest import DEVICES, Gateway, Recorder, Seen, Start, answer
from .test_console import Auth, connected
from .test_limits import somebody

HELD = f"{DEVICES}/7"
QUICK = f"{DEVICES}/5"


class Holding:
    """Lets a service hold what is asked of it, until it may go."""

    def __init__(self, *services: Recorder) -> None:
        self.held = 0
        self.let_go = asyncio.Event()
        self._changed = asyncio.Condition()
        for service in services:
            service.respond = self.respond

    async def respond(self, seen: Seen, receive: Any, send: Any) -> None:
        if seen.path != QUICK and seen.query != "wait=0":
            async with self._changed:
                self.held += 1
                self._changed.notify_all()
            await self.let_go.wait()
        await answer(send, b"{}")

    async def reached(self, count: int) -> None:
        """Return when so many requests are held."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.held >= count)


@pytest.fixture
async def accounts(servers: Servers) -> AsyncIterator[Auth]:
    """`auth` on the bus."""
    async with Auth().answering(servers.nats_url) as answering:
        yield answering


@contextlib.asynccontextmanager
async def asking(requests: Any) -> AsyncIterator[list["asyncio.Task[Any]"]]:
    """Requests that are under way; they end with the block."""
    tasks = [asyncio.ensure_future(request) for request in requests]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def known(gateway: Gateway, accounts: Auth, limits: Limits) -> None:
    """Let the tenant have limits, and wait until the gateway has heard of them.

    With the tenant's first request it asks for them; the answer comes over one connection with
    that of what it asks for a user's request after it.
    """
    accounts.limits = limits
    await connected(gateway)
    await gateway.redis.set(access_version_key("t1"), 3)
    headers = {"Authorization": f"Bearer {await gateway.token(PrincipalKind.USER)}"}
    assert (await gateway.http.get("/user", headers=headers)).status_code == 200


async def test_requests_of_one_principal_keep_out_no_other(
    gateway: Gateway, accounts: Auth, device: Recorder
) -> None:
    """Beyond its limit an application is 429 with Retry-After, which names the limit."""
    await known(gateway, accounts, Limits(each_requests=3, requests=1000))
    holding = Holding(device)
    greedy, other = await gateway.bearer(), await gateway.bearer()
    async with asking(gateway.http.get(HELD, headers=greedy) for _ in range(3)) as under_way:
        await holding.reached(3)
        refused = await gateway.http.get(QUICK, headers=greedy)
        served = await gateway.http.get(QUICK, headers=other)
        holding.let_go.set()
        assert [reply.status_code for reply in await asyncio.gather(*under_way)] == [200] * 3
    again = await gateway.http.get(QUICK, headers=greedy)
    assert (refused.status_code, served.status_code, again.status_code) == (429, 200, 200)
    assert "eachRequests" in refused.json()["errMsg"]
    assert int(refused.headers["retry-after"]) >= 1


async def test_requests_of_one_tenant_are_bounded_together(
    gateway: Gateway, accounts: Auth, device: Recorder
) -> None:
    """The next request of the tenant is rejected. A disconnected client frees its place."""
    await known(gateway, accounts, Limits(requests=2))
    holding = Holding(device)
    async with asking(
        [gateway.http.get(HELD, headers=await gateway.bearer()) for _ in range(2)]
    ) as under_way:
        await holding.reached(2)
        headers = await gateway.bearer()
        assert (await gateway.http.get(QUICK, headers=headers)).status_code == 429
        under_way[0].cancel()
        async with asyncio.timeout(30):
            while (await gateway.http.get(QUICK, headers=headers)).status_code == 429:
                await asyncio.sleep(0.01)


async def test_polls_of_one_device_do_not_block_others(
    start: Start, accounts: Auth, device: Recorder
) -> None:
    """Four of its forty polls run, also if the service has a single slot."""
    async with start(upstream_requests=1) as gateway:
        holding = Holding(device)
        sn, key = await gateway.device()
        url = f"/ingest/v1/{sn}/commands?wait=60"
        async with asking(gateway.http.get(url, auth=(sn, key)) for _ in range(40)) as polls:
            await holding.reached(4)
            refused = set()
            for poll in asyncio.as_completed(polls):
                refused.add((await poll).status_code)
                if sum(poll.done() for poll in polls) == 36:
                    break
            own = await gateway.http.get(f"/ingest/v1/{sn}/commands?wait=0", auth=(sn, key))
            other = await gateway.http.get(QUICK, headers=await gateway.bearer())
    assert (refused, holding.held, own.status_code, other.status_code) == ({429}, 4, 200, 200)


@pytest.mark.parametrize("count", [300, pytest.param(4_097, marks=pytest.mark.slow)])
async def test_honest_polls_are_served(start: Start, device: Recorder, count: int) -> None:
    """As many devices wait as there are, and others' requests are answered meanwhile."""
    holding = Holding(device)
    async with start(upstream_requests=16, address_rate=0) as gateway:
        devices = [await gateway.device() for _ in range(count)]
        connector = aiohttp.TCPConnector(limit=0)
        base = f"http://127.0.0.1:{gateway.port}"
        async with aiohttp.ClientSession(base, connector=connector) as session:

            async def poll(sn: str, key: str) -> int:
                headers = {"Authorization": aiohttp.encode_basic_auth(sn, key)}
                url = f"/ingest/v1/{sn}/commands?wait=60"
                while True:
                    async with session.get(url, headers=headers) as reply:
                        if reply.status not in {429, 503}:  # while a busy machine lets them in
                            return reply.status

            async with contextlib.AsyncExitStack() as stack:
                polls = []
                for some in (devices[at : at + 256] for at in range(0, count, 256)):
                    polls += await stack.enter_async_context(
                        asking(poll(sn, key) for sn, key in some)
                    )
                    await holding.reached(len(polls))
                served = await gateway.http.get(QUICK, headers=await gateway.bearer())
                holding.let_go.set()
                found = await asyncio.gather(*polls)
    assert (served.status_code, set(found)) == (200, {200})


async def test_callers_without_a_login_are_bounded_by_address(start: Start, auth: Recorder) -> None:
    """One address that holds as much as it may is 429; another, and who has a token, comes in."""
    async with start(address_requests=2, trusted_proxies="127.0.0.1") as gateway:
        holding = Holding(auth)
        here, there = somebody(), somebody()
        async with asking(gateway.http.post("/oauth/token", headers=here) for _ in range(2)):
            await holding.reached(2)
            refused = await gateway.http.post("/oauth/token", headers=here)
            known = await gateway.http.get(QUICK, headers=here | await gateway.bearer())
            async with asking([gateway.http.post("/oauth/token", headers=there)]) as under_way:
                await holding.reached(3)
                holding.let_go.set()
                served: httpx.Response = await under_way[0]
    assert (refused.status_code, known.status_code, served.status_code) == (429, 200, 200)


async def test_the_gateway_reports_requests_in_progress(
    gateway: Gateway, accounts: Auth, servers: Servers, device: Recorder
) -> None:
    """A request over the bus gets those of a tenant and of one of its principals."""
    await connected(gateway)
    holding = Holding(device)
    sn, key = await gateway.device()
    bus = await Bus.connect(servers.nats_url, name="auth")
    try:
        async with asking(
            [
                gateway.http.get(HELD, headers=await gateway.bearer()),
                gateway.http.get(f"/ingest/v1/{sn}/commands?wait=60", auth=(sn, key)),
            ]
        ):
            await holding.reached(2)
            used = await UsageCollector(bus).collect(UsageRequest("t1", "device", sn))
    finally:
        await bus.drain()
    assert {name: number for name, number in used.items() if number} == {
        "requests": 1, "polls": 1, "eachPolls": 1
    }  # fmt: skip
