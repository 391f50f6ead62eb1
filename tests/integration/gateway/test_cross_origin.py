"""Pages of other origins in browsers: what is allowed by the setting, and nothing else."""

import httpx
import pytest

from .conftest import DEVICES, Gateway, Recorder, Start

PAGE = "https://console.example.com"
PREFLIGHT = {
    "Access-Control-Request-Method": "PATCH",
    "Access-Control-Request-Headers": "authorization,content-type",
}
PATHS = [DEVICES, "/ingest/v1/a/report", "/oauth/token", "/user", "/openapi.json", "/nothing"]


async def ask(gateway: Gateway, path: str, origin: str) -> httpx.Response:
    """A browser's question before a request that is not simple."""
    return await gateway.http.options(path, headers={"Origin": origin, **PREFLIGHT})


async def test_preflight(start: Start, device: Recorder) -> None:
    """It is answered here, without a credential, on every path; no service sees it."""
    async with start(allowed_origins=f"https://other.example.com,{PAGE}") as gateway:
        for path in PATHS:
            reply = await ask(gateway, path, PAGE)
            assert (reply.status_code, reply.content) == (204, b""), path
            assert reply.headers["access-control-allow-origin"] == PAGE
            assert reply.headers["access-control-allow-credentials"] == "true"
            assert reply.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "PATCH" in reply.headers["access-control-allow-methods"].split(", ")
            assert "Origin" in reply.headers["vary"]
            refused = await ask(gateway, path, "https://evil.example.com")
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
    assert not device.seen


async def test_answers_and_refusals_can_be_read(start: Start) -> None:
    """The page sees also why it was refused, and the fields that it may need."""
    async with start(allowed_origins=PAGE) as gateway:
        headers = await gateway.bearer()
        for given, status in ((headers, 200), ({}, 401)):
            reply = await gateway.http.get(DEVICES, headers={**given, "Origin": PAGE})
            assert reply.status_code == status
            assert reply.headers["access-control-allow-origin"] == PAGE
            assert "Retry-After" in reply.headers["access-control-expose-headers"]
            stranger = await gateway.http.get(DEVICES, headers={**given, "Origin": PAGE + "x"})
            assert stranger.status_code == status
            assert "access-control-allow-origin" not in stranger.headers


async def test_anybody(start: Start) -> None:
    """With `*` every page may call, and no browser's own credential comes with it."""
    async with start(allowed_origins="*") as gateway:
        for reply in (
            await ask(gateway, DEVICES, PAGE),
            await gateway.http.get("/openapi.json", headers={"Origin": PAGE}),
        ):
            assert reply.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in reply.headers


@pytest.mark.parametrize("path", PATHS)
async def test_no_origin_is_allowed_by_default(gateway: Gateway, path: str) -> None:
    """A preflight is rejected, and answers have no CORS headers."""
    refused = await ask(gateway, path, PAGE)
    assert (refused.status_code, "vary" in refused.headers) == (403, False)
    reply = await gateway.http.get("/openapi.json", headers={"Origin": PAGE})
    assert "access-control-allow-origin" not in reply.headers
