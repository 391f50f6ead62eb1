"""WebSocket clients at the door: let in as requests are, then joined with `management`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError, web

from libs.common.contracts.limits import Limits
from libs.common.identity import PRINCIPAL_HEADER, PrincipalKind
from libs.common.identity.tokens import token_hash
from tests.loglines import logged_lines
from tests.servers import Servers

from .conftest import Gateway, Recorder, Start
from .test_console import Auth, connected, user


class Management:
    """A WebSocket server that echoes, and remembers how it was asked."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.closed = asyncio.Event()
        self.port = 0

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        self.seen.append(request)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        async for message in socket:
            await socket.send_str(message.data)
        self.closed.set()
        return socket


@pytest_asyncio.fixture
async def management() -> AsyncIterator[Management]:
    """The service `management`, as far as `/websocket` goes."""
    service = Management()
    app = web.Application()
    for path in ("/websocket", "/mqtt"):
        app.router.add_get(path, service.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.port = runner.addresses[0][1]
    yield service
    await runner.cleanup()


@pytest_asyncio.fixture
async def accounts(servers: Servers) -> AsyncIterator[Auth]:
    """`auth` as the gateway asks it."""
    async with Auth().answering(servers.nats_url) as answering:
        yield answering


@pytest_asyncio.fixture
async def gateway(
    start: Start,
    management: Management,
    accounts: Auth,
    auth: Recorder,
) -> AsyncIterator[Gateway]:
    """A gateway in front of it; it is on the bus."""
    async with start(
        upstreams=f"management=http://127.0.0.1:{management.port},auth=http://127.0.0.1:{auth.port}"
    ) as running:
        await connected(running)
        yield running


@pytest_asyncio.fixture
async def client() -> AsyncIterator[ClientSession]:
    """A browser."""
    async with ClientSession() as session:
        yield session


def _url(gateway: Gateway, query: str = "", path: str = "/websocket") -> str:
    return f"http://127.0.0.1:{gateway.port}{path}{query}"


async def _token(gateway: Gateway) -> str:
    return (await user(gateway))["Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/websocket", "?Authorization=Bearer%20{}"),
        ("/websocket", "?Authorization=Bearer+{}"),
        ("/websocket", "?Authorization={}"),
        ("/api/v1/websocket", "?authorization={}"),
    ],
)
async def test_a_token_of_the_query_opens(
    gateway: Gateway, management: Management, client: ClientSession, path: str, query: str
) -> None:
    """With or without `Bearer `; what is sent comes back, the token goes no further."""
    token = await _token(gateway)
    async with client.ws_connect(_url(gateway, query.format(token), path)) as socket:
        await socket.send_str("ping")
        assert (await socket.receive_str()) == "ping"
    (seen,) = management.seen
    assert token not in str(seen.rel_url) + str(seen.headers)
    principal = gateway.verifier.verify(seen.headers[PRINCIPAL_HEADER])
    assert (principal.kind, principal.functions) == (PrincipalKind.USER, frozenset({"device.view"}))
    assert seen.headers["x-thingway-token"] == token_hash(token)
    assert seen.headers["x-real-ip"] == "127.0.0.1"


async def test_a_token_of_the_header_opens(gateway: Gateway, client: ClientSession) -> None:
    """Clients that can set a header field need no query."""
    async with client.ws_connect(_url(gateway), headers=await user(gateway)) as socket:
        await socket.send_str("ping")
        assert (await socket.receive_str()) == "ping"


async def test_large_messages_pass_whole_both_ways(gateway: Gateway, client: ClientSession) -> None:
    """Frames are passed on unread, whatever their size."""
    text = "x" * 3_000_000
    async with client.ws_connect(
        _url(gateway), headers=await user(gateway), max_msg_size=0
    ) as socket:
        await socket.send_str(text)
        assert await socket.receive_str() == text


async def _refused(client: ClientSession, url: str, **more: Any) -> int:
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect(url, **more)
    return refused.value.status


async def test_without_a_valid_token_it_stays_shut(
    gateway: Gateway, management: Management, client: ClientSession
) -> None:
    """No token, an unknown one and one of an application are 403 before the upgrade."""
    assert await _refused(client, _url(gateway)) == 403
    assert await _refused(client, _url(gateway, "?Authorization=Bearer%20nobody")) == 403
    assert await _refused(client, _url(gateway), headers=await gateway.bearer()) == 403
    assert management.seen == []


async def test_mqtt_is_let_through_without_a_login(
    gateway: Gateway, management: Management, client: ClientSession
) -> None:
    """Its first packet says who it is: what else came along, and who one claims to be, does not."""
    headers = {"Sec-WebSocket-Protocol": "mqtt", PRINCIPAL_HEADER: "me", **await user(gateway)}
    async with client.ws_connect(_url(gateway, path="/mqtt"), headers=headers) as socket:
        await socket.send_str("ping")
        assert await socket.receive_str() == "ping"
    (seen,) = management.seen
    assert (seen.path, seen.headers["Sec-WebSocket-Protocol"]) == ("/mqtt", "mqtt")
    assert {PRINCIPAL_HEADER, "x-thingway-token", "Authorization"}.isdisjoint(seen.headers)


async def test_an_upgrade_elsewhere_is_unknown(gateway: Gateway, client: ClientSession) -> None:
    """Only `/websocket` can be upgraded."""
    headers = await user(gateway)
    assert await _refused(client, _url(gateway, path="/user"), headers=headers) == 404


async def test_a_rejected_handshake_has_the_error_envelope(gateway: Gateway) -> None:
    """The answer contains a code and the request id."""
    with logged_lines() as lines:
        reader, writer = await gateway.wire(
            "GET /websocket HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\n"
            "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n"
        )
        answer = (await reader.read()).decode()
        writer.close()
    assert answer.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert '"error_code":"authentication_failed"' in answer
    request_id = answer.partition('"request_id":"')[2][:32]
    assert f"x-request-id: {request_id}\r\n" in answer
    assert request_id in {line.get("requestId") for line in lines}


async def test_a_query_token_has_one_name(gateway: Gateway, client: ClientSession) -> None:
    """`Authorization` alone is promised; `access_token` belongs to the open API."""
    url = _url(gateway, f"?access_token={await _token(gateway)}")
    assert await _refused(client, url) == 403


async def test_either_end_that_closes_closes_the_other(
    gateway: Gateway, management: Management, client: ClientSession
) -> None:
    """A client that goes away is heard of; a close of the service arrives with its reason."""
    socket = await client.ws_connect(_url(gateway), headers=await user(gateway))
    socket._response.close()
    await asyncio.wait_for(management.closed.wait(), 10)
    socket = await client.ws_connect(_url(gateway), headers=await user(gateway))
    await management.sockets[-1].close(code=4001, message=b"token revoked")
    message = await socket.receive()
    assert message.type is WSMsgType.CLOSE
    assert (message.data, message.extra) == (4001, "token revoked")


async def test_a_slow_client_delays_the_service_and_not_the_gateway(
    gateway: Gateway, management: Management
) -> None:
    """The gateway does not buffer unread data; the service waits."""
    headers = await user(gateway)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1024)
    writer.write(
        b"GET /websocket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Authorization: " + headers["Authorization"].encode() + b"\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    (socket,) = management.sockets
    sent = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while True:
                await socket.send_bytes(b"x" * 65536)
                sent += 65536
    assert 0 < sent < 64 * 1024 * 1024
    writer.close()


async def test_more_than_may_be_open_are_refused(
    start: Start,
    management: Management,
    accounts: Auth,
    auth: Recorder,
    client: ClientSession,
) -> None:
    """Beyond the bound a handshake is 503; when one closes, the next comes in."""
    upstreams = f"management=http://127.0.0.1:{management.port},auth=http://127.0.0.1:{auth.port}"
    async with start(upstreams=upstreams, websockets=1) as gateway:
        await connected(gateway)
        headers = await user(gateway)
        first = await client.ws_connect(_url(gateway), headers=headers)
        assert await _refused(client, _url(gateway), headers=headers) == 503
        await first.close()
        while True:
            try:
                second = await client.ws_connect(_url(gateway), headers=headers)
                break
            except aiohttp.WSServerHandshakeError:
                await asyncio.sleep(0.01)
        await second.close()


async def test_management_that_is_away_is_a_503(
    start: Start,
    accounts: Auth,
    auth: Recorder,
    client: ClientSession,
) -> None:
    """The client is told, and may try again."""
    async with start(
        upstreams=f"management=http://127.0.0.1:1,auth=http://127.0.0.1:{auth.port}"
    ) as gateway:
        await connected(gateway)
        assert await _refused(client, _url(gateway), headers=await user(gateway)) == 503


async def test_sockets_of_one_user_keep_out_no_other(
    gateway: Gateway, accounts: Auth, client: ClientSession
) -> None:
    """Beyond its limit it is 429 with Retry-After; when one of its sockets closes, it comes in."""
    accounts.limits = Limits(each_websockets=2, websockets=3)
    headers, other, third = [await user(gateway, tenant="t2") for _ in range(3)]
    for each in (other, third):  # with the second answer that of the tenant's limits has come
        assert (await gateway.http.get("/user", headers=each)).status_code == 200
    own = [await client.ws_connect(_url(gateway), headers=headers) for _ in range(2)]
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect(_url(gateway), headers=headers)
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "5")
    own.append(await client.ws_connect(_url(gateway), headers=other))
    assert await _refused(client, _url(gateway), headers=third) == 429
    await own[0].close()
    while True:
        try:
            own.append(await client.ws_connect(_url(gateway), headers=headers))
            break
        except WSServerHandshakeError:
            await asyncio.sleep(0.01)


async def test_a_socket_that_management_rejects_is_not_counted(
    start: Start, accounts: Auth, auth: Recorder, client: ClientSession
) -> None:
    """The client may try again as often as it likes."""
    upstreams = f"management=http://127.0.0.1:1,auth=http://127.0.0.1:{auth.port}"
    async with start(upstreams=upstreams) as gateway:
        await connected(gateway)
        headers = await user(gateway)
        refused = {await _refused(client, _url(gateway), headers=headers) for _ in range(110)}
    assert refused == {503}
