"""Answers an error in the right envelope, straight in ASGI."""

import asyncio

from litestar.types import Send

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import ThingwayError, Unauthenticated
from services.gateway.proxy.body import RequestBody
from services.gateway.routes import Credential

LINGER = 10.0
"""Seconds that a client gets to finish sending what was refused, so that it reads why."""
SMALL = 64 * 1024
"""Bytes of a refused body that are read without closing the connection after."""

_CHALLENGES = {
    Credential.TOKEN: b'Bearer realm="thingway", error="invalid_token"',
    Credential.DEVICE_KEY: b'Basic realm="thingway", charset="UTF-8"',
}


class HeaderTooLarge(ThingwayError):
    """431: the header fields are larger than the limit."""

    status = 431
    code = "header_too_large"


class RequestTimeout(ThingwayError):
    """408: the client did not send its body in time."""

    status = 408
    code = "request_timeout"


def slow_client() -> ThingwayError:
    """The refusal when the client does not send on, or does not take what it asked for."""
    return RequestTimeout("the client was too slow")


async def refuse(
    send: Send,
    error: ThingwayError,
    *,
    path: str,
    request_id: str,
    credential: Credential = Credential.NONE,
    body: RequestBody | None = None,
) -> None:
    """Answer `error`; close the connection when most of a large body is still to come."""
    content = encode_error(error, path=path, request_id=request_id)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    for name, value in error_headers(error).items():
        headers.append((name.lower().encode(), value.encode()))
    if isinstance(error, Unauthenticated) and credential in _CHALLENGES:
        headers.append((b"www-authenticate", _CHALLENGES[credential]))
    closes = body is not None and not body.finished and (body.length or SMALL + 1) > SMALL
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    if closes and body is not None:
        await send({"type": "http.response.body", "body": content, "more_body": True})
        content = b""
        await _linger(body)
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _linger(body: RequestBody) -> None:
    try:
        async with asyncio.timeout(LINGER):
            await body.drain()
    except TimeoutError:
        return
