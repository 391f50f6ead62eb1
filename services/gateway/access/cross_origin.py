"""Header fields for browsers, and requests from pages of other origins (CORS, Fetch standard)."""

from collections.abc import Mapping

from litestar.types import HTTPScope, Message, Send
from yarl import URL

from libs.common.settings import SettingsInvalid

ANY_ORIGIN = "*"
ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
EXPOSED_HEADERS = b"Allow, Content-Disposition, ETag, Location, Retry-After, X-Request-Id"
"""Header fields of answers that a page may read, in addition to the default ones."""
PREFLIGHT_CACHE_SECONDS = b"600"
"""Seconds for which a browser caches the answer to a preflight request."""

HeaderField = tuple[bytes, bytes]


LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


def build_security_headers(hsts: str, host: str, *, has_certificate: bool) -> list[tuple[str, str]]:
    """Return the security header fields for browsers, which every answer has.

    A page has a stricter policy of its own, and browsers apply both. `hsts` and `host` are the
    settings. With HSTS, a browser would require TLS on all ports of `localhost`. `auto` therefore
    omits HSTS for loopback hosts.
    """
    fields = [
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "same-origin"),
        ("Content-Security-Policy", "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    ]
    if hsts == "on" or (hsts == "auto" and has_certificate and host not in LOOPBACK_HOSTS):
        fields.append(("Strict-Transport-Security", "max-age=31536000; includeSubDomains"))
    return fields


def is_preflight(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether an OPTIONS request is a preflight request of a browser."""
    return b"origin" in headers and b"access-control-request-method" in headers


class AllowedOrigins:
    """The origins whose pages may call the API; by default none."""

    def __init__(self, text: str = "") -> None:
        origins = {part.strip() for part in text.split(",") if part.strip()}
        self._any = ANY_ORIGIN in origins
        self._origins = {_normalize_origin(origin).encode() for origin in origins - {ANY_ORIGIN}}
        self.on = bool(origins)
        """Whether any origin is configured; otherwise answers have no CORS headers."""

    def allows(self, origin: bytes) -> bool:
        """Return whether pages of `origin` may call the API."""
        return self._any or origin in self._origins

    def add_headers_on_send(self, scope: HTTPScope, send: Send) -> Send:
        """Return a `send` that adds CORS headers to the answer."""
        fields = self._build_answer_headers(
            next((value for name, value in scope["headers"] if name == b"origin"), b"")
        )

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        return send_with_headers

    @staticmethod
    def build_preflight_headers(headers: Mapping[bytes, bytes]) -> list[HeaderField]:
        """Return the headers that only an answer to a preflight from a permitted origin has."""
        fields = [
            (b"access-control-allow-methods", ALLOWED_METHODS),
            (b"access-control-max-age", PREFLIGHT_CACHE_SECONDS),
            (b"vary", b"Access-Control-Request-Headers"),
        ]
        if requested_headers := headers.get(b"access-control-request-headers"):
            fields.append((b"access-control-allow-headers", requested_headers))
        return fields

    def _build_answer_headers(self, origin: bytes) -> list[HeaderField]:
        """Return the CORS headers of an answer; `origin` is the page's, or empty if not sent.

        Only pages of explicitly listed origins may send the browser's cookies and logins.
        """
        if origin and origin in self._origins:
            return [
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-credentials", b"true"),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
                (b"vary", b"Origin"),
            ]
        if self._any:
            fields = [
                (b"access-control-allow-origin", b"*"),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            ]
            return [*fields, (b"vary", b"Origin")] if self._origins else fields
        return [(b"vary", b"Origin")]


def _normalize_origin(origin: str) -> str:
    """Return an origin in the form of browsers; raise `SettingsInvalid`."""
    try:
        url = URL(origin)
        plain = str(url.origin()) if url.scheme and url.host else ""
    except ValueError:
        plain = ""
    if plain != origin.lower():
        raise SettingsInvalid(
            f"THINGWAY_ALLOWED_ORIGINS: {origin!r} must be scheme://host[:port] or {ANY_ORIGIN}"
        )
    return plain
