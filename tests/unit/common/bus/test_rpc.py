"""Operations of services, at which tenants take turns."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from libs.common.bus import RpcClient, RpcServer, rpc
from libs.common.telemetry.logs import name_lines


class Ask(msgspec.Struct):
    tenant: str


class AskOther(msgspec.Struct):
    what: str = ""


class Request:
    """A request as nats.micro hands it over; notes its answer."""

    def __init__(self, subject: str, body: Any, headers: dict[str, str] | None = None) -> None:
        self.subject = subject
        self.data = msgspec.json.encode(body)
        self.headers = headers
        self.answered = asyncio.Event()
        self.status = ""

    async def respond(self, data: bytes) -> None:
        self.status = "200"
        self.answered.set()

    async def respond_error(self, code: str, text: str, data: bytes = b"") -> None:
        self.status = code
        self.answered.set()


class Hanging:
    """Answers all tenants except `noisy`, whose requests never end."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()

    async def answer(self, tenant: str) -> None:
        self.begun[tenant] += 1
        if tenant == "noisy":
            await asyncio.Event().wait()

    async def plain(self, request: Ask) -> None:
        await self.answer(request.tenant)

    async def by_header(self, _: AskOther) -> None:
        await self.answer("noisy" if self.begun["noisy"] < 4 else "quiet")

    async def of_integration(self, who: str, _: AskOther) -> None:
        await self.answer(who)


async def send(server: RpcServer, *requests: Request) -> None:
    for request in requests:
        await server._endpoints[-1].handler(request)


@pytest.mark.parametrize("kind", ["struct", "header", "integration"])
async def test_requests_of_one_tenant_that_hang_do_not_delay_others(kind: str):
    """Whether the request, its header or the bus's permissions name the tenant."""
    server, hanging = RpcServer(None, "test"), Hanging()

    def request(tenant: str) -> Request:
        match kind:
            case "struct":
                return Request("rpc.test.x", Ask(tenant))
            case "header":
                return Request("rpc.test.x", AskOther(), {rpc.TENANT: tenant})
        return Request(f"rpc.test.x.{tenant}", AskOther())

    match kind:
        case "struct":
            server.offer("x", Ask, hanging.plain, at_once=8)
        case "header":
            server.offer("x", AskOther, hanging.by_header, at_once=8)
        case "integration":
            server.offer_each("x", AskOther, hanging.of_integration)
    await send(server, *(request("noisy") for _ in range(500)))
    quiet = request("quiet")
    await send(server, quiet)
    async with asyncio.timeout(30):
        await quiet.answered.wait()
    assert quiet.status == "200"
    assert hanging.begun["noisy"] == (rpc.AT_ONCE // 2 if kind == "integration" else 4)


async def test_only_a_tenant_with_too_many_requests_is_refused(monkeypatch: pytest.MonkeyPatch):
    """With 429, which the client raises as an error that may be tried again."""
    monkeypatch.setattr(rpc, "WAITING", 3)
    server = RpcServer(None, "test")
    server.offer("x", Ask, Hanging().plain, at_once=2)
    noisy = [Request("rpc.test.x", Ask("noisy")) for _ in range(5)]
    await send(server, *noisy)
    assert [one.status for one in noisy] == ["", "", "", "", "429"]
    quiet = Request("rpc.test.x", Ask("quiet"))
    await send(server, quiet)
    async with asyncio.timeout(30):
        await quiet.answered.wait()
    assert quiet.status == "200"


async def test_a_request_whose_client_gave_up_is_not_handled():
    """It waited for longer than its client does."""
    server, hanging = RpcServer(None, "test"), Hanging()
    server.offer("x", Ask, hanging.plain)
    late = Request("rpc.test.x", Ask("quiet"), {rpc.PATIENCE: "0"})
    await send(server, late)
    await server._schedulers[0].finish()
    assert (hanging.begun, late.status) == ({}, "")


class Client:
    """Notes the headers of requests."""

    async def request(self, *_: Any, headers: dict[str, str], **__: Any) -> Any:
        self.headers = headers
        return Request("", None)


@pytest.mark.parametrize(("request_", "named"), [(Ask("a"), None), (AskOther(), "current")])
async def test_a_client_names_the_tenant_that_the_request_does_not(request_: Any, named: str):
    """It is that of the caller for whom the process works at the moment."""
    bus = type("Bus", (), {"client": Client()})()
    name_lines(tenant="current")
    await RpcClient(bus).call("rpc.test.x", request_, None, timeout=2.5)
    assert bus.client.headers.get(rpc.TENANT) == named
    assert bus.client.headers[rpc.PATIENCE] == "2.5"
