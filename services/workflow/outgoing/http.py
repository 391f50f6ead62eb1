"""HTTP requests of flows (aiohttp): addresses judged where connections are made."""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urljoin

import msgspec
from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession, InvalidURL
from multidict import CIMultiDict
from opentelemetry.trace import SpanKind
from yarl import URL

from libs.common.http.outgoing import AddressRefused, describe_blocked_host, outgoing_session
from libs.common.telemetry.tracing import mark_failed, trace_header, trace_step
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.hosts import check_host

MOST_SECONDS = 30.0
LARGEST_ANSWER = 1024**2
"""Bytes, as they come and decompressed."""
TOO_LARGE = f"the body has more than {LARGEST_ANSWER} bytes"
ANY_HEADER = 32 + zlib.MAX_WBITS
"""Of gzip or zlib; some servers send deflate without one."""
GZIP = b"\x1f\x8b"
"""The beginning of a member of gzip, which may have several."""
LONGEST_URL = 4096
REDIRECTS = frozenset({301, 302, 303, 307, 308})
KEPT_AS_IS = frozenset({307, 308})
"""Redirects after which method and body stay."""
NO_CODING = frozenset({"", "identity", "none", "utf-8", "utf8"})
"""Content encodings that change nothing; some servers put a charset there."""
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
"""Headers that say how a message is sent, which is not for flows to say."""
OK, BAD = range(200, 300), 400
"""Statuses of a success, and the status from which on an answer is a failure."""
HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers that also go to another host that a redirect leads to."""
AGENT = {"User-Agent": "Thingway"}

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request."""

    method: Method
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    redirects: int = 0
    """Most redirects that are followed."""


@dataclass(frozen=True)
class HttpAnswer:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters; of a name that is there twice the last."""
    body: bytes
    """Without its content encoding; empty when there is a `fault`."""
    fault: str = ""
    """Why the body could not be read."""

    @property
    def content_type(self) -> str:
        """What the body is said to be."""
        return self.headers.get("content-type", "")


class OutgoingHttp:
    """Sends requests, as many at a time as there are runs of flows and deliveries of notices."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        """`allowed`: networks that are not public and may be called all the same."""
        self._allowed = allowed
        self._session: ClientSession | None = None

    async def __aenter__(self) -> "OutgoingHttp":  # noqa: PYI034 - not made to be inherited
        self._session = outgoing_session(self._allowed, MOST_SECONDS, decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def check(self, request: HttpRequest, seconds: float) -> None:
        """Judge a request without sending it; raise what sending it would."""
        url = checked(request.url)
        sendable(request.headers)
        await check_host(str(url.host), url.port or 0, self._allowed, seconds)

    async def send(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """Send a request, and follow as many redirects as it allows, all in `seconds`."""
        try:
            async with asyncio.timeout(min(seconds, MOST_SECONDS)):
                return await self._follow(request)
        except TimeoutError as error:
            raise NodeFailed(f"{checked(request.url).host} did not answer in time") from error

    async def post(self, request: HttpRequest, seconds: float) -> None:
        """Send a webhook; any answer but 2xx is a failure, a redirect too."""
        answer = await self.send(request, seconds)
        if answer.status not in OK:
            raise NodeFailed(f"the webhook was answered with {answer.status}")

    async def _follow(self, request: HttpRequest) -> HttpAnswer:
        url, method, body = checked(request.url), request.method, request.body
        headers = sendable(request.headers)
        for _ in range(request.redirects + 1):
            answer = await self._once(method, url, headers, body)
            target = answer.headers.get("location")
            if answer.status not in REDIRECTS or not target or not request.redirects:
                return answer
            following = checked(_joined(url, target))
            if url.scheme == "https" and following.scheme != "https":
                raise NodeFailed("it leads from https to http, which is not followed")
            if following.origin() != url.origin():
                headers = CIMultiDict(
                    (name, value) for name, value in headers.items() if name.lower() in HARMLESS
                )
            if answer.status not in KEPT_AS_IS and method not in ("GET", "HEAD"):
                method, body = "GET", b""
                headers.popall("Content-Type", None)
            url = following
        raise NodeFailed(f"it leads elsewhere more than {request.redirects} times")

    async def _once(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes
    ) -> HttpAnswer:
        if self._session is None:
            raise RuntimeError("OutgoingHttp is not open")
        called: dict[str, str | int] = {
            "server.address": url.host or "",
            "server.port": url.port or 0,
        }
        try:
            with trace_step(method, SpanKind.CLIENT, called) as span:
                given = {**AGENT, **trace_header(), **headers}
                async with self._session.request(
                    method, url, headers=given, data=body or None, allow_redirects=False
                ) as answer:
                    content, fault = await _read(answer)
                span.set_attribute("http.response.status_code", answer.status)
                if answer.status >= BAD:
                    mark_failed(span, str(answer.status))
        except TimeoutError:
            raise
        except (ClientError, OSError, ValueError) as error:
            raise NodeFailed(_why(url, error)) from error
        found = {name.lower(): _text(value) for name, value in answer.headers.items()}
        return HttpAnswer(answer.status, found, content, fault)


def checked(text: str) -> URL:
    """A URL that may be asked for, as far as that can be told before; raise `NodeFailed`."""
    if len(text) > LONGEST_URL:
        raise NodeFailed(f"the URL has more than {LONGEST_URL} characters")
    try:
        url = URL(text.strip())
        usable = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
    except ValueError as error:
        raise NodeFailed(f"this is no URL: {error}") from error
    if not usable:
        raise NodeFailed("the URL must begin with http:// or https:// and name a host")
    if url.user is not None or url.password is not None:
        raise NodeFailed("the URL must hold no login; use a header")
    return url


def sendable(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Headers of a request; raise `NodeFailed` naming one that cannot be sent."""
    for name, value in headers.items():
        if name.lower() in OURS or not HEADER_NAME.fullmatch(name):
            raise NodeFailed(f"the header {name:.50} cannot be set")
        if any(mark in name + value for mark in "\r\n\0"):
            raise NodeFailed(f"the header {name.strip():.50} has a line break")
    return CIMultiDict(headers)


async def _read(answer: ClientResponse) -> tuple[bytes, str]:
    """Read a body and decompress it; give why it cannot be read beside no body."""
    content = b""
    try:
        async for chunk in answer.content.iter_chunked(65_536):
            content += chunk
            if len(content) > LARGEST_ANSWER:
                answer.close()
                return b"", TOO_LARGE
        codings = ",".join(answer.headers.getall("Content-Encoding", ()))
        for coding in reversed(codings.lower().split(",")):
            content = _decompressed(content, coding.strip())
    except (ClientError, ValueError) as error:
        return b"", f"the body cannot be read: {str(error) or type(error).__name__:.200}"
    return (b"", TOO_LARGE) if len(content) > LARGEST_ANSWER else (content, "")


def _decompressed(content: bytes, coding: str) -> bytes:
    """Decompress at most a byte more than an answer may have; raise `ValueError`."""
    if not content or coding in NO_CODING:
        return content
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise ValueError(f"it is encoded as {coding:.50}")
    headless = coding == "deflate" and content[0] & 0xF != zlib.DEFLATED
    found = b""
    while content and len(found) <= LARGEST_ANSWER:
        member = zlib.decompressobj(-zlib.MAX_WBITS if headless else ANY_HEADER)
        try:
            found += member.decompress(content, LARGEST_ANSWER + 1 - len(found))
        except zlib.error as error:
            raise ValueError(f"it is not {coding}") from error
        if not member.eof and len(found) <= LARGEST_ANSWER:
            raise ValueError(f"its {coding} is cut off")
        content = member.unused_data if member.unused_data.startswith(GZIP) else b""
    return found


def _text(value: str) -> str:
    """A header's value, whose bytes that are no UTF-8 are Latin-1 (RFC 9110, 5.5)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _joined(url: URL, target: str) -> str:
    """Where a redirect leads; raise `NodeFailed` when that is no URL."""
    try:
        return urljoin(str(url), target)
    except ValueError as error:
        raise NodeFailed(f"it leads to what is no URL: {error}") from error


def _why(url: URL, error: Exception) -> str:
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, AddressRefused):
        return describe_blocked_host(url.host)
    if isinstance(error, InvalidURL):
        return "this is no URL that can be asked"
    return f"{url.host} cannot be asked: {str(error) or type(error).__name__:.200}"


def webhook_request(
    url: str, content: Any, secret: str, headers: Mapping[str, str] | None = None
) -> HttpRequest:
    """Return a POST of `content` as JSON, signed when there is a `secret`.

    The receiver knows us by hex HMAC-SHA256(secret, timestamp+nonce+body). The timestamp is in
    seconds; a receiver that refuses old ones and nonces it has seen is safe from repetition.
    """
    body = msgspec.json.encode(content)
    found = {"Content-Type": "application/json", **(headers or {})}
    if secret:
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        code = hmac.new(secret.encode(), (timestamp + nonce).encode() + body, hashlib.sha256)
        found |= {"TIMESTAMP": timestamp, "NONCE": nonce, "SIGNATURE": code.hexdigest()}
    return HttpRequest(method="POST", url=url, headers=found, body=body)
