"""HTTP requests of flows (aiohttp). Addresses are checked when connecting."""

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

from libs.common.http.outgoing import AddressBlocked, create_outgoing_session, describe_blocked_host
from libs.common.telemetry.tracing import mark_failed, trace_header, trace_step
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.hosts import check_host

MAX_REQUEST_SECONDS = 30.0
MAX_RESPONSE_BODY_BYTES = 1024**2
"""Maximum bytes of the body of a response, compressed and decompressed."""
TOO_LARGE_REASON = f"the body must have at most {MAX_RESPONSE_BODY_BYTES} bytes"
GZIP_OR_ZLIB_WINDOW_BITS = 32 + zlib.MAX_WBITS
"""Window bits that detect a gzip or zlib header. Some servers send deflate without a header."""
GZIP_MAGIC = b"\x1f\x8b"
"""Start of a gzip member; a body may have several."""
MAX_URL_CHARACTERS = 4096
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
METHOD_KEEPING_STATUSES = frozenset({307, 308})
"""Redirects that keep method and body."""
UNENCODED_CONTENT_ENCODINGS = frozenset({"", "identity", "none", "utf-8", "utf8"})
"""Values of `Content-Encoding` that mean no encoding; some servers wrongly send a charset there."""
HEADER_NAME_PATTERN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token as in RFC 9110."""
TRANSPORT_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
"""Headers of the transport, which flows may not set."""
SUCCESS_STATUSES, FIRST_FAILURE_STATUS = range(200, 300), 400
"""The statuses of success, and the lowest status of a failure."""
CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers that are also sent to another host after a redirect."""
USER_AGENT_HEADER = {"User-Agent": "Thingway"}

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """An HTTP request of a node or a notification to another system."""

    method: Method
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    redirects: int = 0
    """Maximum redirects to follow."""


@dataclass(frozen=True)
class HttpAnswer:
    """The response to an `HttpRequest`, after redirects."""

    status: int
    headers: Mapping[str, str]
    """Last value of each header by its name in lower case."""
    body: bytes
    """Decompressed; empty if there is a `fault`."""
    fault: str = ""
    """Reason if the body could not be decoded."""

    @property
    def content_type(self) -> str:
        """Return the content type of the body."""
        return self.headers.get("content-type", "")


class OutgoingHttp:
    """Sends HTTP requests to other systems. Callers limit the concurrency."""

    def __init__(self, allowed_networks: tuple[str, ...]) -> None:
        """Allow requests to `allowed_networks` in addition to public ones."""
        self._allowed_networks = allowed_networks
        self._session: ClientSession | None = None

    async def __aenter__(self) -> "OutgoingHttp":  # noqa: PYI034 - not made to be inherited
        self._session = create_outgoing_session(
            self._allowed_networks, MAX_REQUEST_SECONDS, decompress=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def check_request(self, request: HttpRequest, seconds: float) -> None:
        """Validate a request and look up its host, without sending it; raise `NodeFailed`."""
        url = parse_url(request.url)
        build_headers(request.headers)
        await check_host(str(url.host), url.port or 0, self._allowed_networks, seconds)

    async def send(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """Send a request and follow up to `request.redirects` redirects, within `seconds`.

        Raises `NodeFailed` without a response. A response of any status is returned.
        """
        try:
            async with asyncio.timeout(min(seconds, MAX_REQUEST_SECONDS)):
                return await self._send_and_follow(request)
        except TimeoutError as error:
            raise NodeFailed(f"{parse_url(request.url).host} did not respond in time") from error

    async def send_webhook(self, request: HttpRequest, seconds: float) -> None:
        """Send a webhook; any status other than 2xx is a failure."""
        answer = await self.send(request, seconds)
        if answer.status not in SUCCESS_STATUSES:
            raise NodeFailed(f"the webhook returned status {answer.status}")

    async def _send_and_follow(self, request: HttpRequest) -> HttpAnswer:
        url, method, body = parse_url(request.url), request.method, request.body
        headers = build_headers(request.headers)
        for _ in range(request.redirects + 1):
            answer = await self._send_once(method, url, headers, body)
            target = answer.headers.get("location")
            if answer.status not in REDIRECT_STATUSES or not target or not request.redirects:
                return answer
            following = parse_url(_resolve_redirect(url, target))
            if url.scheme == "https" and following.scheme != "https":
                raise NodeFailed("the redirect from https to http is not allowed")
            if following.origin() != url.origin():
                headers = CIMultiDict(
                    (name, value)
                    for name, value in headers.items()
                    if name.lower() in CROSS_ORIGIN_HEADERS
                )
            if answer.status not in METHOD_KEEPING_STATUSES and method not in ("GET", "HEAD"):
                method, body = "GET", b""
                headers.popall("Content-Type", None)
            url = following
        raise NodeFailed(f"more than {request.redirects} redirects are not followed")

    async def _send_once(
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
                all_headers = {**USER_AGENT_HEADER, **trace_header(), **headers}
                async with self._session.request(
                    method, url, headers=all_headers, data=body or None, allow_redirects=False
                ) as answer:
                    content, fault = await _read_body(answer)
                span.set_attribute("http.response.status_code", answer.status)
                if answer.status >= FIRST_FAILURE_STATUS:
                    mark_failed(span, str(answer.status))
        except TimeoutError:
            raise
        except (ClientError, OSError, ValueError) as error:
            raise NodeFailed(_describe_failure(url, error)) from error
        answer_headers = {
            name.lower(): _decode_header_value(value) for name, value in answer.headers.items()
        }
        return HttpAnswer(answer.status, answer_headers, content, fault)


def parse_url(text: str) -> URL:
    """Parse a URL; raise `NodeFailed` if it cannot be called."""
    if len(text) > MAX_URL_CHARACTERS:
        raise NodeFailed(f"the URL must have at most {MAX_URL_CHARACTERS} characters")
    try:
        url = URL(text.strip())
        usable = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
    except ValueError as error:
        raise NodeFailed(f"the URL is invalid: {error}") from error
    if not usable:
        raise NodeFailed("the URL must start with http:// or https:// and have a host")
    if url.user is not None or url.password is not None:
        raise NodeFailed("the URL must not have a login; use a header")
    return url


def build_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return headers of a request; raise `NodeFailed` for a forbidden header."""
    for name, value in headers.items():
        if name.lower() in TRANSPORT_HEADERS or not HEADER_NAME_PATTERN.fullmatch(name):
            raise NodeFailed(f"the header {name:.50} cannot be set")
        if any(mark in name + value for mark in "\r\n\0"):
            raise NodeFailed(f"the header {name.strip():.50} must not have a line break")
    return CIMultiDict(headers)


async def _read_body(answer: ClientResponse) -> tuple[bytes, str]:
    """Return the decompressed body, or an empty body with the reason."""
    content = b""
    try:
        async for chunk in answer.content.iter_chunked(65_536):
            content += chunk
            if len(content) > MAX_RESPONSE_BODY_BYTES:
                answer.close()
                return b"", TOO_LARGE_REASON
        codings = ",".join(answer.headers.getall("Content-Encoding", ()))
        for coding in reversed(codings.lower().split(",")):
            content = _decompress(content, coding.strip())
    except (ClientError, ValueError) as error:
        return b"", f"the body cannot be decoded: {str(error) or type(error).__name__:.200}"
    return (b"", TOO_LARGE_REASON) if len(content) > MAX_RESPONSE_BODY_BYTES else (content, "")


def _decompress(content: bytes, coding: str) -> bytes:
    """Decompress up to one byte more than the limit; raise `ValueError`."""
    if not content or coding in UNENCODED_CONTENT_ENCODINGS:
        return content
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise ValueError(f"encoding {coding:.50} is not supported")
    headless = coding == "deflate" and content[0] & 0xF != zlib.DEFLATED
    decompressed = b""
    while content and len(decompressed) <= MAX_RESPONSE_BODY_BYTES:
        member = zlib.decompressobj(-zlib.MAX_WBITS if headless else GZIP_OR_ZLIB_WINDOW_BITS)
        try:
            decompressed += member.decompress(
                content, MAX_RESPONSE_BODY_BYTES + 1 - len(decompressed)
            )
        except zlib.error as error:
            raise ValueError(f"it is not valid {coding}") from error
        if not member.eof and len(decompressed) <= MAX_RESPONSE_BODY_BYTES:
            raise ValueError(f"its {coding} is truncated")
        content = member.unused_data if member.unused_data.startswith(GZIP_MAGIC) else b""
    return decompressed


def _decode_header_value(value: str) -> str:
    """Return a header value, decoded as Latin-1 if it is not UTF-8 (RFC 9110, 5.5)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _resolve_redirect(url: URL, target: str) -> str:
    """Return the target of a redirect; raise `NodeFailed` if it is no URL."""
    try:
        return urljoin(str(url), target)
    except ValueError as error:
        raise NodeFailed(f"the redirect has an invalid URL: {error}") from error


def _describe_failure(url: URL, error: Exception) -> str:
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, AddressBlocked):
        return describe_blocked_host(url.host)
    if isinstance(error, InvalidURL):
        return "the URL cannot be called"
    return f"{url.host} cannot be reached: {str(error) or type(error).__name__:.200}"


def build_webhook_request(
    url: str, content: Any, secret: str, headers: Mapping[str, str] | None = None
) -> HttpRequest:
    """Return a POST of `content` as JSON, signed if there is a `secret`.

    The signature is hex HMAC-SHA256(secret, timestamp+nonce+body). The timestamp is in seconds. A
    receiver that rejects old timestamps and repeated nonces is safe from replay.
    """
    body = msgspec.json.encode(content)
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    if secret:
        timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
        code = hmac.new(secret.encode(), (timestamp + nonce).encode() + body, hashlib.sha256)
        all_headers |= {"TIMESTAMP": timestamp, "NONCE": nonce, "SIGNATURE": code.hexdigest()}
    return HttpRequest(method="POST", url=url, headers=all_headers, body=body)
