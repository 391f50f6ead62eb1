"""Paths find their service, and the request gets there as it was sent."""

import asyncio
import contextlib
import re
from typing import Any

import pytest

from libs.common.http import protocol
from tests.loglines import logged_lines

from .conftest import DEVICES, Gateway, Recorder, Seen, Start, answer


async def test_request_and_answer_pass_unchanged(gateway: Gateway, device: Recorder) -> None:
    """Method, path as it was encoded, query, body, status and fields arrive as they were sent."""

    async def respond(seen, receive, send):
        seen.body = (await receive())["body"]
        await answer(send, b'{"a":1}', 201, (b"x-own", b"1"), (b"set-cookie", b"a=1"))

    device.respond = respond
    reply = await gateway.http.request(
        "PATCH",
        f"{DEVICES}/a%2Fb%20c?x=1&x=2&y=%C3%A4",
        content=b"body",
        headers=await gateway.bearer() | {"Content-Type": "text/x", "X-Mine": "m"},
    )
    seen = device.last
    assert (seen.method, seen.path, seen.query, seen.body) == (
        "PATCH", f"{DEVICES}/a%2Fb%20c", "x=1&x=2&y=%C3%A4", b"body",
    )  # fmt: skip
    assert (seen.headers["content-type"], seen.headers["x-mine"]) == ("text/x", "m")
    assert (reply.status_code, reply.content) == (201, b'{"a":1}')
    assert (reply.headers["x-own"], reply.headers["set-cookie"]) == ("1", "a=1")


async def test_version_alias_is_rewritten(gateway: Gateway, device: Recorder) -> None:
    """`v1.0` asks the service for `v1`."""
    reply = await gateway.http.get(
        "/device/openapi/v1.0/devices/5?a=b", headers=await gateway.bearer()
    )
    assert reply.status_code == 200
    assert (device.last.path, device.last.query) == (f"{DEVICES}/5", "a=b")


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/token/"])
async def test_token_endpoint_needs_no_token(gateway: Gateway, auth: Recorder, path: str) -> None:
    """`/oauth/token` goes to auth, without a principal; a slash at the end means the same."""
    reply = await gateway.http.post(path, data={"grant_type": "x"})
    assert reply.status_code == 200
    assert auth.last.body == b"grant_type=x"
    assert "x-thingway-principal" not in auth.last.headers


async def test_request_id_is_made_here(gateway: Gateway, device: Recorder) -> None:
    """The service and the client get one id of 32 hex digits, not the client's own."""
    headers = await gateway.bearer() | {"X-Request-Id": "mine"}
    reply = await gateway.http.get(f"{DEVICES}/5", headers=headers)
    made = reply.headers["x-request-id"]
    assert len(made) == 32
    assert int(made, 16) >= 0
    assert device.last.headers["x-request-id"] == made


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/device/openapi/v2/devices", "errCode"),
        ("/device/openapi/v1", "errCode"),
        ("/oauth/token/more", "errCode"),
        ("/device/openapi/v1/%2e%2e/%2E%2E/x", "errCode"),
        ("/device/openapi/v1/..%2fx", "errCode"),
        ("/nothing", "error_code"),
        ("/schema/openapi.json", "error_code"),
        ("/api/v1/device/openapi/v1/devices", "error_code"),
        ("/api/v1/oauth/token", "error_code"),
        ("/integration/x", "error_code"),
        ("/api/v1/workflow/flows/search", "error_code"),
    ],
)
async def test_unknown_path_is_404_in_its_envelope(
    gateway: Gateway, device: Recorder, path: str, code: str
) -> None:
    """A path of no running service is 404 in the envelope of its API; no service hears of it."""
    with logged_lines() as lines:
        reply = await gateway.http.get(path, headers=await gateway.bearer())
    spelt = {"errCode": "data_not_found", "error_code": "data_no_found"}[code]
    assert (reply.status_code, reply.json()[code]) == (404, spelt)
    assert device.seen == []
    request_id = reply.json()["requestId" if code == "errCode" else "request_id"]
    assert request_id == reply.headers["x-request-id"]
    assert request_id in {line.get("requestId") for line in lines}


@pytest.mark.parametrize("path", ["/websocket", "/api/v1/websocket", "/mqtt"])
async def test_a_plain_request_to_a_websocket_is_400(gateway: Gateway, path: str) -> None:
    """The answer says that the address accepts only WebSockets."""
    reply = await gateway.http.get(path)
    body = reply.json()
    assert (reply.status_code, body["detail_message"]) == (400, "Upgrade")
    assert "accepts only WebSockets" in body["error_message"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/openapi.json", "/docs"])
async def test_every_page_has_a_request_id(gateway: Gateway, path: str) -> None:
    """An id of the client's own is not taken over."""
    sent = {"X-Request-Id": "mine"}
    for method in ("GET", "HEAD", "OPTIONS", "POST"):
        reply = await gateway.http.request(method, path, headers=sent)
        assert re.fullmatch("[0-9a-f]{32}", reply.headers["x-request-id"])


async def test_a_refusal_of_a_service_is_logged_with_its_id(
    gateway: Gateway, device: Recorder
) -> None:
    """Also the gateway's log has the id of what a service refused."""

    async def refuse(seen: Seen, receive: Any, send: Any) -> None:
        await answer(send, b"{}", status=409)

    device.respond = refuse
    with logged_lines() as lines:
        reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert reply.status_code == 409
    due = ("answered GET device: 409", reply.headers["x-request-id"])
    assert due in [(line["message"], line["requestId"]) for line in lines]


async def test_header_limit(start: Start, device: Recorder) -> None:
    """A header above the limit is 431."""
    async with start(max_header=1000) as gateway:
        headers = await gateway.bearer()
        fits = await gateway.http.get(f"{DEVICES}/5", headers=headers)
        refused = await gateway.http.get(f"{DEVICES}/5", headers=headers | {"X-A": "a" * 1000})
    assert (fits.status_code, refused.status_code, len(device.seen)) == (200, 431, 1)


async def test_endless_header_is_cut_off(gateway: Gateway) -> None:
    """A head that does not end is 431 before it fills the memory."""
    reader, writer = await gateway.wire("GET / HTTP/1.1\nHost: a\n")
    sent, answered = 0, b""
    with contextlib.suppress(ConnectionError):  # what was sent after the answer resets it
        while not writer.is_closing() and sent < 1000 and not reader.at_eof():
            writer.write(b"X-%d: %b\r\n" % (sent, b"a" * 1000))
            await writer.drain()
            await asyncio.sleep(0.001)
            sent += 1
        answered = await reader.readline()
    assert 60 < sent < 200
    assert answered[9:12] in {b"431", b""}
    writer.close()


async def test_slow_header_is_cut_off(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that takes too long ends its connection; one that comes in parts does not."""
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_SECONDS", 0.3)
    reader, writer = await gateway.wire("GET /healthz HTTP/1.1\n")
    writer.write(b"Host: a\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    await asyncio.sleep(0.5)
    assert not reader.at_eof()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost:")
    assert b"HTTP" not in await asyncio.wait_for(reader.read(), 2)
    writer.close()


async def test_hop_by_hop_fields_stay_here(gateway: Gateway, device: Recorder) -> None:
    """Fields for one hop, those named in Connection, and ours from outside are dropped."""
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"GET {DEVICES}/5 HTTP/1.1\nHost: outside\nAuthorization: Bearer {token}\n"
        "Connection: keep-alive, X-Secret\nConnection: x-other\nKeep-Alive: 5\nTE: trailers\n"
        "Proxy-Authorization: p\nX-Secret: s\nX-Other: o\nX-Thingway-Principal: forged\n"
        "x-thingway-anything: forged\nX-Forwarded-For: 9.9.9.9\nForwarded: for=9.9.9.9\n"
        "X-Real-IP: 9.9.9.9\n"
        "X-Kept: yes\n\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    headers = device.last.headers
    assert not headers.keys() & {
        "connection", "keep-alive", "te", "proxy-authorization", "x-secret", "x-other",
        "x-thingway-anything", "forwarded", "authorization",
    }  # fmt: skip
    assert headers["x-kept"] == "yes"
    assert headers["x-thingway-principal"] != "forged"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert (headers["x-forwarded-host"], headers["x-forwarded-proto"]) == ("outside", "http")
    assert headers["x-real-ip"] == "127.0.0.1"
    names = [name for name, _ in device.last.fields]
    assert (names.count("x-thingway-principal"), names.count("x-real-ip")) == (1, 1)


async def test_hop_by_hop_fields_of_the_service_stay_here(
    gateway: Gateway, device: Recorder
) -> None:
    """The service's fields for one hop and its internal ones do not reach the client."""

    async def respond(seen, receive, send):
        await answer(
            send, b"{}", 200, (b"keep-alive", b"timeout=1"), (b"connection", b"x-hop"),
            (b"x-hop", b"1"), (b"x-thingway-inside", b"1"), (b"x-request-id", b"service"),
        )  # fmt: skip

    device.respond = respond
    reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert not reply.headers.keys() & {"keep-alive", "x-hop", "x-thingway-inside"}
    assert reply.headers["x-request-id"] != "service"


async def test_trusted_proxy_is_believed(start: Start, device: Recorder) -> None:
    """X-Forwarded-* of a trusted proxy are passed on, with the proxy added."""
    async with start(trusted_proxies="127.0.0.0/8") as gateway:
        forwarded = {
            "X-Forwarded-For": "8.8.8.8",
            "X-Forwarded-Proto": "https",
            "X-Forwarded-Host": "api.example.org",
        }
        await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer() | forwarded)
    headers = device.last.headers
    assert headers["x-forwarded-for"] == "8.8.8.8, 127.0.0.1"
    assert headers["x-real-ip"] == "8.8.8.8"
    assert headers["x-forwarded-proto"] == "https"
    assert headers["x-forwarded-host"] == "api.example.org"


async def test_trace_context_of_a_client_does_not_pass(gateway: Gateway, device: Recorder) -> None:
    """A trace begins at the gateway; without tracing there is none."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer() | {"traceparent": parent})
    assert "traceparent" not in device.last.headers
