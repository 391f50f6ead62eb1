"""Who takes too much is refused alone: each hole as somebody used it.

Turns of tenants have tests without a platform: `tests/unit/common/scheduling` holds the scheduler
and lists every queue that uses it, `tests/unit/common/http/test_turns.py` the answers of a process,
and `tests/integration/auth/test_event_shares.py` the shares of `EVENTS`.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import quantiles
from uuid import uuid4

import aiohttp
import pytest

from tests.adversary.oracle import Oracle
from tests.adversary.town import Home
from tests.e2e.waiting import until
from tests.integration.workflow.designs import design, edge, node

pytestmark = pytest.mark.xdist_group("platform")


@pytest.mark.parametrize("number", [60, pytest.param(4_200, marks=pytest.mark.slow)])
async def test_long_polls_of_a_device_do_not_affect_others(oracle: Oracle, number: int) -> None:
    """Polls of one device above its limit are refused; all others get answers."""
    home = oracle.town.mallory
    headers = {"Authorization": aiohttp.encode_basic_auth(home.device.sn, home.device.key)}
    connector = aiohttp.TCPConnector(limit=0)
    seen: list[int] = []

    async def poll(session: aiohttp.ClientSession) -> None:
        path = f"/ingest/v1/{home.device.sn}/commands"
        async with session.get(path, params={"wait": "20"}) as answer:
            seen.append(answer.status)

    async with aiohttp.ClientSession(
        home.platform.base_url, headers=headers, connector=connector
    ) as session:
        polls = [asyncio.create_task(poll(session)) for _ in range(number)]

        async def refused() -> bool:
            return len(seen) >= number - 10

        await until(refused)
        assert set(seen) == {429}
        await oracle.judge()
        for one in polls:
            one.cancel()
        await asyncio.gather(*polls, return_exceptions=True)


async def test_sockets_of_a_user_do_not_affect_others(oracle: Oracle) -> None:
    """WebSockets of one user above its share are refused; others can open theirs."""
    town = oracle.town
    async with AsyncExitStack() as stack:
        refused = 0
        for _ in range(130):
            try:
                await stack.enter_async_context(socket(town.mallory))
            except aiohttp.WSServerHandshakeError:
                refused += 1
        assert refused >= 20
        for _ in range(10):
            await stack.enter_async_context(socket(town.alice))
        await oracle.judge()


@asynccontextmanager
async def socket(home: Home) -> AsyncIterator[None]:
    """Open a WebSocket of a household's user."""
    query = {"Authorization": home.console.token}
    async with (
        aiohttp.ClientSession(home.platform.base_url) as session,
        session.ws_connect("/websocket", params=query),
    ):
        yield


@pytest.mark.parametrize("number", [150, pytest.param(10_500, marks=pytest.mark.slow)])
async def test_a_hook_that_spins_holds_up_no_other(oracle: Oracle, number: int) -> None:
    """However often a flow is called whose code never ends, another tenant's run ends at once."""
    town = oracle.town
    token, flow = uuid4().hex, ""
    spinning = {"language": "js", "expression": "for (;;) {}"}
    text = design(
        [node("hook", "httpIn", token=token), node("spin", "code", expression=spinning)],
        edge("hook", "spin"),
    )
    body = {"name": f"flow {token}", "enabled": True, "design_data": text}
    made = await town.mallory.console.done("POST", "/workflow/flows/design", body)
    flow = made["id"]
    connector = aiohttp.TCPConnector(limit=32)
    async with aiohttp.ClientSession(
        town.mallory.platform.base_url, connector=connector
    ) as session:

        async def call(hook: str) -> int:
            async with session.post(f"/workflow/hooks/{hook}", json={}) as answer:
                return answer.status

        called = set(await asyncio.gather(*(call(token) for _ in range(number))))
        assert called <= {200, 429}
        assert await call(town.alice.hook) == 200
    console = town.alice.console

    async def ended() -> bool:
        flows = await console.done("POST", "/workflow/flows/search", {})
        logs = await console.done("POST", f"/workflow/flows/{flows[0]['id']}/logs/search", {})
        return any(log["status"] == "SUCCESS" for log in logs)

    await until(ended)
    delete = {"workflow_id_list": [flow]}
    await town.mallory.console.ask("POST", "/workflow/flows/batch-delete", delete)
    await oracle.settle()


async def test_a_key_is_issued_without_a_fixed_wait(oracle: Oracle) -> None:
    """The slower half of the calls takes about as long as the faster half."""
    device = await oracle.town.mallory.add_device()
    took = []
    for _ in range(40):
        began = time.perf_counter()
        await device.new_key()
        took.append(time.perf_counter() - began)
    quarter, _, three_quarters = quantiles(took, n=4)
    assert three_quarters < quarter * 5, took
