"""Operations of services, at which tenants take turns."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from libs.common.bus import RawRequest, RpcClient, RpcServer, rpc
from libs.common.telemetry.logs import add_log_fields


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

    async def of_integration(self, who: str, _: AskOther) -> None:
        await self.answer(who)


def ask(tenant: str, **headers: str) -> Request:
    """A request as `RpcClient` sends it."""
    return Request("rpc.test.x", Ask(tenant), {rpc.TENANT_HEADER: tenant, **headers})


async def send(server: RpcServer, *requests: Request) -> None:
    for request in requests:
        await server._endpoints[-1].handler(request)


@pytest.mark.parametrize("kind", ["header", "integration"])
async def test_requests_of_one_tenant_that_hang_do_not_delay_others(kind: str):
    """Whether the header or the permissions of the bus tell who asks."""
    server, hanging = RpcServer(None, "test"), Hanging()

    def request(tenant: str) -> Request:
        if kind == "header":
            return ask(tenant)
        return Request(f"rpc.test.x.{tenant}", AskOther())

    if kind == "header":
        server.offer("x", Ask, hanging.plain, at_once=8)
    else:
        server.offer_each("x", AskOther, hanging.of_integration)
    await send(server, *(request("noisy") for _ in range(500)))
    quiet = request("quiet")
    await send(server, quiet)
    async with asyncio.timeout(30):
        await quiet.answered.wait()
    assert quiet.status == "200"
    assert hanging.begun["noisy"] == (
        rpc.MAX_CONCURRENT_REQUESTS // 2 if kind == "integration" else 4
    )


async def test_only_a_tenant_with_too_many_requests_is_refused(monkeypatch: pytest.MonkeyPatch):
    """With 429, which the client raises as an error that may be tried again."""
    monkeypatch.setattr(rpc, "MAX_WAITING_REQUESTS", 3)
    server = RpcServer(None, "test")
    server.offer("x", Ask, Hanging().plain, at_once=2)
    noisy = [ask("noisy") for _ in range(5)]
    await send(server, *noisy)
    assert [one.status for one in noisy] == ["", "", "", "", "429"]
    quiet = ask("quiet")
    await send(server, quiet)
    async with asyncio.timeout(30):
        await quiet.answered.wait()
    assert quiet.status == "200"


async def test_a_request_whose_client_gave_up_is_not_handled():
    """It waited for longer than its client does."""
    server, hanging = RpcServer(None, "test"), Hanging()
    server.offer("x", Ask, hanging.plain)
    late = ask("quiet", **{rpc.CALL_TIMEOUT_HEADER: "0"})
    await send(server, late)
    await server._schedulers[0].finish()
    assert (hanging.begun, late.status) == ({}, "")


class Client:
    """Notes the headers of requests."""

    async def request(self, *_: Any, headers: dict[str, str], **__: Any) -> Any:
        self.headers = headers
        return Request("", None)


@pytest.mark.parametrize(("request_", "named"), [(Ask("a"), "a"), (AskOther(), "current")])
async def test_a_client_names_the_tenant(request_: Any, named: str):
    """That of the request, or of the caller for whom the process works at the moment."""
    bus = type("Bus", (), {"client": Client()})()
    add_log_fields(tenant="current")
    await RpcClient(bus).call("rpc.test.x", request_, None, timeout=2.5)
    assert bus.client.headers.get(rpc.TENANT_HEADER) == named
    assert bus.client.headers[rpc.CALL_TIMEOUT_HEADER] == "2.5"


class Wire:
    """A bus whose client hands each request to a server of `rpc.test.x`."""

    def __init__(self, server: RpcServer) -> None:
        self.client = self
        self._server = server
        self.payloads: list[bytes] = []

    async def request(
        self, subject: str, payload: bytes, *, timeout: float, headers: dict[str, str]
    ) -> Any:
        self.payloads.append(payload)
        request = Request(subject, None, headers)
        request.data = payload
        await send(self._server, request)
        await request.answered.wait()
        return SimpleNamespace(headers={}, data=b"null")


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b'{"tenant": "other"}'])
async def test_a_raw_request_is_its_body_with_the_tenant_beside_it(body: bytes):
    """Nothing in it is read, or encoded once more."""
    server, received = RpcServer(None, "test"), []

    async def answer(request: RawRequest) -> None:
        received.append(request)

    server.offer("x", RawRequest, answer)
    wire: Any = Wire(server)
    await RpcClient(wire).call("rpc.test.x", RawRequest("t", body), type(None))
    assert received == [RawRequest("t", body)]
    assert wire.payloads == [body]
