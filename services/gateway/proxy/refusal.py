"""Answers an error in the right envelope, straight in ASGI.

The body of a refused request may still be on its way. Who closes a connection with bytes
unread resets it, and the reset may take the answer with it before the client has read it
(RFC 9112, 9.6). So the rest is read and thrown away first, within bounds.
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
"""Seconds that a client gets to finish sending what was refused."""
SILENCE = 5.0
"""Seconds without a byte after which it is not waited for."""
UNBIDDEN = 0.1
"""Seconds in which the body of a client comes that asks for a go-ahead and does not await it."""
MOST_SKIPPED = 64 * 1024 * 1024
"""Bytes of a refused body that are read: a client that goes on sending is reset."""
SMALL = 64 * 1024
"""Bytes of a refused body that are read without closing the connection after."""

_CHALLENGES = {
    Credential.TOKEN: b'Bearer realm="thingway", error="invalid_token"',
    Credential.DEVICE_KEY: b'Basic realm="thingway", charset="UTF-8"',
}


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
    body: RequestBody,
) -> None:
    """Answer `error`; close the connection when a large body is still to come, or may be.

    Whether a client that awaits `100 Continue` sends its body after a refusal is not known,
    so nothing on its connection could be told from that body (RFC 9110, 10.1.1).
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
    """Read the rest away while it comes; it does not when its client awaits a go-ahead."""
    pause, left = UNBIDDEN if body.on_demand else SILENCE, MOST_SKIPPED
    try:
        async with asyncio.timeout(LINGER):
            while not body.finished and left > 0:
                async with asyncio.timeout(pause):
                    left -= await body.skip()
                pause = SILENCE
    except TimeoutError:
        return
