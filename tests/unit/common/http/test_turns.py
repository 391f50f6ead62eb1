"""Requests of tenants take turns at the workers of a service."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from libs.common.http.request import PRINCIPAL
from libs.common.http.turns import LARGE_BODIES, LARGE_BODY, OF_PRINCIPAL, WORKERS, Turns
from libs.common.identity import Kind, Principal


class Service:
    """Counts the requests that are worked on, by tenant."""

    def __init__(self) -> None:
        self.turns = Turns()
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
            PRINCIPAL: Principal(Kind.USER, tenant, user),
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


async def test_a_tenant_alone_has_half_and_a_newcomer_finds_a_worker(service: Service):
    """Of one principal there are fewer."""
    for at in range(100):
        service.ask("loud", str(at % 10))
    assert await service.seen() == {"loud": WORKERS // 2}
    service.ask("quiet")
    assert await service.seen() == {"loud": WORKERS // 2, "quiet": 1}


async def test_a_principal_does_not_take_all_that_its_tenant_has(service: Service):
    """Another user of the tenant is served."""
    for _ in range(100):
        service.ask("loud")
    service.ask("loud", "2")
    assert await service.seen() == {"loud": OF_PRINCIPAL + 1}


async def test_who_waits_on_purpose_holds_no_worker(service: Service):
    """Neither do those who do not read the next piece."""
    for _ in range(100):
        service.ask("loud", waits=True)
        service.ask("slow", pieces=1)
    found = await service.seen()
    assert found["loud"] == 100
    assert service.turns._requests.free == WORKERS
    service.ask("slow", "2")
    assert (await service.seen())["slow"] == 1


async def test_large_bodies_of_a_tenant_come_one_by_one(service: Service):
    """Others have their own; small ones do not wait."""
    half = LARGE_BODY // 2
    for _ in range(10):
        service.ask("loud", body=[half, half, half])
    assert await service.seen() == {"loud": 1}
    service.ask("loud", "2", body=[half, half])
    assert await service.seen() == {"loud": 2}
    for at in range(LARGE_BODIES):
        service.ask(f"other {at}", body=[3 * half])
    found = await service.seen()
    assert sum(found.values()) == 2 + LARGE_BODIES - 1
