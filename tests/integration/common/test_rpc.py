"""Calls between services, on a real NATS."""

import asyncio
from typing import Any

import msgspec
import pytest

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.errors import (
    Conflict,
    InvalidInput,
    ThingwayError,
    TooLarge,
    Unavailable,
    UpstreamFailed,
)
from libs.common.store.mongo import StoreUnavailable


class Ask(msgspec.Struct):
    what: str


class Answer(msgspec.Struct):
    length: int


@pytest.fixture(params=[True, False], ids=["discovered", "undiscovered"])
async def rpc(bus: Bus, request: pytest.FixtureRequest) -> Any:
    server = RpcServer(bus, "test", discovered=request.param)

    async def measure(request: Ask) -> Any:
        match request.what:
            case "conflict":
                raise Conflict("is there\r\nInjected: yes — ü", field="sn", code="sn_exists")
            case "store":
                raise StoreUnavailable("away")
            case "bug":
                raise KeyError("bug")
            case "nonsense":
                return {"length": "long"}
            case "flood":
                return "x" * bus.client.max_payload
        return Answer(len(request.what))

    server.offer("measure", Ask, measure)
    await server.start()
    yield RpcClient(bus)
    await server.stop()


async def test_a_call_is_answered(rpc: RpcClient):
    """Struct in, struct out."""
    assert await rpc.call("rpc.test.measure", Ask("abc"), Answer) == Answer(3)


@pytest.mark.parametrize(
    ("request_", "kind", "code"),
    [
        (Ask("conflict"), Conflict, "sn_exists"),
        (Ask("store"), Unavailable, "service_unavailable"),
        (Ask("bug"), ThingwayError, "server_error"),
        (Ask("nonsense"), UpstreamFailed, "bad_gateway"),
        (Ask("flood"), TooLarge, "data_too_large"),
        (Ask("x" * 2**21), TooLarge, "data_too_large"),
        ({"what": 1}, InvalidInput, "parameter_validation_failed"),
    ],
)
async def test_errors_travel(rpc: RpcClient, request_: Any, kind: type[ThingwayError], code: str):
    """An error of ours is raised again at the caller; others are 5xx and never the caller's."""
    with pytest.raises(ThingwayError) as caught:
        await rpc.call("rpc.test.measure", request_, Answer)
    assert (type(caught.value), caught.value.code) == (kind, code)


async def test_a_request_that_is_not_utf8_is_the_callers_mistake(bus: Bus, rpc: RpcClient):
    """As any other that cannot be read."""
    for body in (b'{"what": "\xff"}', b"{", b"[" * 5000):
        answer = await bus.client.request("rpc.test.measure", body, timeout=5)
        assert (answer.headers or {})["Nats-Service-Error-Code"] == "400"


async def test_requests_are_handled_beside_each_other(bus: Bus):
    """A slow one keeps nobody waiting, and is finished before the server has stopped."""
    server, go_on, answered = RpcServer(bus, "beside"), asyncio.Event(), []

    async def measure(request: Ask) -> Answer:
        if request.what == "slow":
            await go_on.wait()
        answered.append(request.what)
        return Answer(len(request.what))

    server.offer("measure", Ask, measure)
    await server.start()
    client = RpcClient(bus)
    slow = asyncio.ensure_future(client.call("rpc.beside.measure", Ask("slow"), Answer))
    await client.call("rpc.beside.measure", Ask("quick"), Answer)
    stopping = asyncio.ensure_future(server.stop())
    go_on.set()
    await stopping
    assert answered == ["quick", "slow"]
    assert await slow == Answer(4)


async def test_a_request_without_a_responder_fails_immediately(rpc: RpcClient):
    """The error is 503, without a wait."""
    async with asyncio.timeout(2):
        with pytest.raises(Unavailable):
            await rpc.call("rpc.test.nothing", Ask("x"), Answer)
