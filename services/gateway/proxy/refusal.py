"""Error answers in the right envelope, in plain ASGI.

The body of a rejected request may still be in transit. Closing a connection with unread bytes
resets it, and the reset may discard the answer before the client has read it (RFC 9112, 9.6). The
rest is therefore read and discarded first, within limits.
"""

import asyncio

from litestar.types import Send

from libs.common.envelope import encode_error, error_headers
from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.http.static import CODINGS
from services.gateway.proxy.body import RequestBody
from services.gateway.proxy.coding import UnknownCoding
from services.gateway.routes import Credential

LINGER = 30.0
"""Seconds for which a client may continue to send a rejected body."""
SILENCE = 5.0
"""Seconds without data after which the connection is closed."""
UNBIDDEN = 0.1
"""Seconds in which a client that expects `100 Continue` may start to send anyway."""
MOST_SKIPPED = 64 * 1024 * 1024
"""Maximum bytes of a rejected body; then the connection is reset."""
SMALL = 64 * 1024
"""Maximum bytes of a rejected body after which the connection stays open."""

_CHALLENGES = {
    Credential.TOKEN: b'Bearer realm="thingway", error="invalid_token"',
    Credential.DEVICE_KEY: b'Basic realm="thingway", charset="UTF-8"',
}


class RequestTimeout(ThingwayError):
    """408: the client did not send its body in time."""

    status = 408
    code = "request_timeout"


def slow_client() -> ThingwayError:
    """Return the error for a client that does not send or receive data in time."""
    return RequestTimeout("the client was too slow")


async def refuse(
    send: Send,
    error: ThingwayError,
    *,
    path: str,
    request_id: str,
    credential: Credential = Credential.NONE,
    body: RequestBody,
) -> None:
    """Answer `error`; close the connection if a large body follows, or may follow.

    A client that expects `100 Continue` may or may not send its body after an error, so the body
    could not be distinguished from the next request (RFC 9110, 10.1.1).
    """
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
    if isinstance(error, UnknownCoding):
        headers.append((b"accept-encoding", b", ".join(CODINGS)))
    closes = body.on_demand or (not body.finished and (body.length or SMALL + 1) > SMALL)
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    if not body.finished:
        await send({"type": "http.response.body", "body": content, "more_body": True})
        content = b""
        await _linger(body)
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _linger(body: RequestBody) -> None:
    """Read and discard the rest of the body, within limits."""
    pause, left = UNBIDDEN if body.on_demand else SILENCE, MOST_SKIPPED
    try:
        async with asyncio.timeout(LINGER):
            while not body.finished and left > 0:
                async with asyncio.timeout(pause):
                    left -= await body.skip()
                pause = SILENCE
    except TimeoutError:
        return
