"""Header fields that restrict browsers and caches."""

import asyncio

import pytest

from services.gateway.access.cross_origin import build_security_headers

from .conftest import DEVICES, Gateway, Recorder, Start, answer

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


async def test_every_answer_restricts_browsers(gateway: Gateway) -> None:
    """Answers of services, pages, errors, and a rejected WebSocket have the same fields."""
    asked = [
        ("GET", DEVICES, await gateway.bearer()),
        ("GET", DEVICES, {}),
        ("GET", "/", {}),
        ("GET", "/docs", {}),
        ("GET", "/healthz", {}),
        ("GET", "/nothing", {}),
        ("GET", "/websocket", UPGRADE),
        ("OPTIONS", DEVICES, {"Origin": "https://a.b", "Access-Control-Request-Method": "GET"}),
    ]
    for method, path, headers in asked:
        reply = await gateway.http.request(method, path, headers=headers)
        assert reply.headers.get_list("x-content-type-options") == ["nosniff"], path
        assert reply.headers["referrer-policy"] == "same-origin", path
        policy = reply.headers["content-security-policy"]
        for directive in ("object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
            assert directive in policy, path
        assert "strict-transport-security" not in reply.headers, path
        assert "set-cookie" not in reply.headers, path
        kind = reply.headers.get("content-type", "")
        assert kind == "application/json" or kind.endswith("charset=utf-8") or not reply.content


@pytest.mark.parametrize("text", ["nonsense\n\n", "GET / HTTP/1.1\n" + "a: b\n" * 20_000])
async def test_a_rejected_connection_restricts_browsers(gateway: Gateway, text: str) -> None:
    """The server answers before it has a request."""
    reader, writer = await gateway.wire(text)
    async with asyncio.timeout(5):
        assert b"\r\nx-content-type-options: nosniff\r\n" in await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_answers_of_services_are_not_stored(gateway: Gateway, device: Recorder) -> None:
    """A service may permit it."""
    headers = await gateway.bearer()
    reply = await gateway.http.get(DEVICES, headers=headers)
    assert reply.headers["cache-control"] == "no-store"
    device.respond = lambda _, __, send: answer(
        send, b"{}", 200, (b"cache-control", b"public, max-age=60")
    )
    reply = await gateway.http.get(DEVICES, headers=headers)
    assert reply.headers.get_list("cache-control") == ["public, max-age=60"]


async def test_hsts_is_sent_when_the_operator_enables_it(start: Start) -> None:
    """A proxy may terminate TLS."""
    async with start(hsts="on") as gateway:
        reply = await gateway.http.get("/healthz")
    assert reply.headers["strict-transport-security"] == "max-age=31536000; includeSubDomains"


@pytest.mark.parametrize(
    ("hsts", "host", "has_certificate", "sent"),
    [
        ("auto", "0.0.0.0", True, True),
        ("auto", "0.0.0.0", False, False),
        ("auto", "127.0.0.1", True, False),
        ("on", "127.0.0.1", False, True),
        ("off", "0.0.0.0", True, False),
    ],
)
def test_hsts_follows_the_setting(hsts: str, host: str, has_certificate: bool, sent: bool) -> None:
    """By default, it requires a certificate and an address that is not loopback."""
    names = [
        name for name, _ in build_security_headers(hsts, host, has_certificate=has_certificate)
    ]
    assert ("Strict-Transport-Security" in names) is sent
