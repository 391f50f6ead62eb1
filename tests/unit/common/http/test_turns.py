"""Requests of tenants take turns at the workers of a service."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.http.middleware import (
    CONCURRENT_REQUESTS,
    CONCURRENT_REQUESTS_PER_PRINCIPAL,
    LARGE_BODY_BYTES,
    MAX_CONCURRENT_LARGE_ANSWERS,
    MAX_CONCURRENT_LARGE_BODIES,
    ConcurrencyLimits,
)
from libs.common.http.request import PRINCIPAL_KEY
from libs.common.identity import Principal, PrincipalKind


class Service:
    """Counts the requests that are worked on, by tenant."""

    def __init__(self) -> None:
        self.turns = ConcurrencyLimits()
        self.running: dict[str, int] = {}
        self.may_end = asyncio.Event()
        self.sent: list[int] = []

    def ask(
        self,
        tenant: str,
        user: str = "1",
        body: list[int] | None = None,
        pieces: int = 0,
        **opt: Any,
    ) -> "asyncio.Task[None]":
        parts = list(body or [])
        scope: Any = {
            "type": "http",
            "headers": [(b"transfer-encoding", b"chunked")] if parts else [],
            "route_handler": SimpleNamespace(opt=opt),
            PRINCIPAL_KEY: Principal(PrincipalKind.USER, tenant, user),
        }

        async def receive() -> Any:
            if not parts:
                await asyncio.Event().wait()
            part = parts.pop(0)
            return {"type": "http.request", "body": b"x" * part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            if message["more_body"]:
                self.running[tenant] -= 1
                await self.may_end.wait()
                self.running[tenant] += 1

        async def app(_: Any, receive: Any, send: Any) -> None:
            while body and (await receive())["more_body"]:
                pass
            self.running[tenant] = self.running.get(tenant, 0) + 1
            for _ in range(pieces):
                await send({"type": "http.response.body", "body": b"", "more_body": True})
            await self.may_end.wait()
            self.running[tenant] -= 1

        return asyncio.ensure_future(self.turns.serve(app, scope, receive, send))

    async def seen(self) -> dict[str, int]:
        for _ in range(50):
            await asyncio.sleep(0)
        return {tenant: number for tenant, number in self.running.items() if number}


@pytest.fixture
async def service() -> Any:
    made = Service()
    tasks: list[asyncio.Task[None]] = []
    honest = made.ask
    made.ask = lambda *given, **more: tasks.append(honest(*given, **more))  # type: ignore[method-assign,assignment,return-value]
    yield made
    made.may_end.set()
    await asyncio.gather(*tasks)


async def test_one_tenant_gets_half_of_the_workers(service: Service):
    """A second tenant gets a worker, and one principal gets fewer than its tenant."""
    for at in range(100):
        service.ask("loud", str(at % 10))
    assert await service.seen() == {"loud": CONCURRENT_REQUESTS // 2}
    service.ask("quiet")
    assert await service.seen() == {"loud": CONCURRENT_REQUESTS // 2, "quiet": 1}


async def test_a_principal_does_not_take_all_that_its_tenant_has(service: Service):
    """Another user of the tenant is served."""
    for _ in range(100):
        service.ask("loud")
    service.ask("loud", "2")
    assert await service.seen() == {"loud": CONCURRENT_REQUESTS_PER_PRINCIPAL + 1}


async def test_long_polls_occupy_no_worker(service: Service):
    """Their number makes no difference."""
    for _ in range(100):
        service.ask("loud", waits=True)
    assert await service.seen() == {"loud": 100}
    assert service.turns.requests.free == CONCURRENT_REQUESTS


async def test_slow_readers_of_large_answers_keep_no_worker(service: Service):
    """They wait for each other, and another tenant's answer is sent at once."""
    for at in range(MAX_CONCURRENT_LARGE_ANSWERS // 2):
        service.ask("slow", str(at % 2), pieces=1)
    await service.seen()
    assert service.turns.requests.free == CONCURRENT_REQUESTS
    assert service.turns.answers.held("slow") == MAX_CONCURRENT_LARGE_ANSWERS // 2
    service.ask("slow", "3", pieces=1)
    service.ask("quick", pieces=1)
    await service.seen()
    assert service.turns.answers.held("slow") == MAX_CONCURRENT_LARGE_ANSWERS // 2
    assert service.turns.answers.held("quick") == 1


async def test_a_large_answer_is_sent_in_pieces():
    """Its reader takes them one by one; none is lost."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send(
            {
                "type": "http.response.body",
                "body": b"x" * (LARGE_BODY_BYTES + 1),
                "more_body": False,
            }
        )

    scope: Any = {"headers": [], "route_handler": SimpleNamespace(opt={})}
    await ConcurrencyLimits().serve(app, scope, send, send)
    assert b"".join(one.get("body", b"") for one in sent) == b"x" * (LARGE_BODY_BYTES + 1)
    assert [one.get("more_body") for one in sent] == [None, True, True, False]


async def test_large_bodies_of_a_tenant_come_one_by_one(service: Service):
    """Others have their own; small ones do not wait."""
    half = LARGE_BODY_BYTES // 2
    for _ in range(10):
        service.ask("loud", body=[half, half, half])
    assert await service.seen() == {"loud": 1}
    service.ask("loud", "2", body=[half, half])
    assert await service.seen() == {"loud": 2}
    for at in range(MAX_CONCURRENT_LARGE_BODIES):
        service.ask(f"other {at}", body=[3 * half])
    found = await service.seen()
    assert sum(found.values()) == 2 + MAX_CONCURRENT_LARGE_BODIES - 1
