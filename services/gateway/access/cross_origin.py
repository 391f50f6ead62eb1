"""Pages of other origins in browsers (CORS, as the Fetch standard has it)."""

from collections.abc import Mapping

from litestar.types import HTTPScope, Message, Send
from yarl import URL

from libs.common.settings import SettingsInvalid

ANY = "*"
METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
SHOWN = b"Allow, Content-Disposition, ETag, Location, Retry-After, X-Request-Id"
"""Header fields of answers that a page may read besides the few that it always may."""
MAX_AGE = b"600"
"""Seconds for which a browser need not ask again."""

Field = tuple[bytes, bytes]


def preflight(headers: Mapping[bytes, bytes]) -> bool:
    """Whether an OPTIONS request is a browser's question for a page of another origin."""
    return b"origin" in headers and b"access-control-request-method" in headers


class CrossOrigin:
    """Knows the origins whose pages may call; None of them as settings come."""

    def __init__(self, text: str = "") -> None:
        origins = {part.strip() for part in text.split(",") if part.strip()}
        self._any = ANY in origins
        self._origins = {_checked(origin).encode() for origin in origins - {ANY}}
        self.on = bool(origins)
        """Whether there are any: else nothing is said in answers."""

    def allows(self, origin: bytes) -> bool:
        """Whether pages of `origin` may call."""
        return self._any or origin in self._origins

    def telling(self, scope: HTTPScope, send: Send) -> Send:
        """A `send` whose answer tells the browser whether the page may read it."""
        fields = self._fields(
            next((value for name, value in scope["headers"] if name == b"origin"), b"")
        )

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *fields]
            await send(message)

        return tell

    @staticmethod
    def answer(headers: Mapping[bytes, bytes]) -> list[Field]:
        """The fields of the answer to a `preflight` from an origin that may call."""
        fields = [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-max-age", MAX_AGE),
            (b"vary", b"Access-Control-Request-Headers"),
        ]
        if wanted := headers.get(b"access-control-request-headers"):
            fields.append((b"access-control-allow-headers", wanted))
        return fields

    def _fields(self, origin: bytes) -> list[Field]:
        """What every answer to `origin`, empty when it is none, has.

        A browser sends cookies and logins of its own only where origins are named one by one.
        """
        if origin and origin in self._origins:
            return [
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-credentials", b"true"),
                (b"access-control-expose-headers", SHOWN),
                (b"vary", b"Origin"),
            ]
        if self._any:
            told = [
                (b"access-control-allow-origin", b"*"),
                (b"access-control-expose-headers", SHOWN),
            ]
            return [*told, (b"vary", b"Origin")] if self._origins else told
        return [(b"vary", b"Origin")]


def _checked(origin: str) -> str:
    """An origin as browsers write it; raise `SettingsInvalid` when it is none."""
    try:
        url = URL(origin)
        plain = str(url.origin()) if url.scheme and url.host else ""
    except ValueError:
        plain = ""
    if plain != origin.lower():
        raise SettingsInvalid(
            f"THINGWAY_ALLOWED_ORIGINS: {origin!r} is not scheme://host[:port], nor {ANY}"
        )
    return plain
