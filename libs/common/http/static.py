"""Documents that are the same for everybody: tagged, compressed once, sent when they are new."""

import hashlib
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

from litestar import Response
from litestar.status_codes import HTTP_304_NOT_MODIFIED

from libs.common.http.request import Connection

PACKET = 1400
"""Bytes that travel in one packet: an answer of so many is not sooner there for being smaller."""
CODINGS = {b"gzip": 31, b"deflate": 15}
"""Codings by the window that zlib has for them, the better one first."""


@lru_cache(maxsize=256)
def wanted(accept: bytes) -> bytes | None:
    """The coding that an `Accept-Encoding` asks for, None for a plain answer."""
    weights = {}
    for entry in accept.lower().split(b","):
        name, _, weight = entry.partition(b";")
        weights[name.strip()] = _weight(weight)
    for coding in CODINGS:
        if weights.get(coding, weights.get(b"*", 0.0)) > 0:
            return coding
    return None


def _weight(parameter: bytes) -> float:
    """A weight of `q=…`; 1 without one, 0 when it is no number."""
    name, _, value = parameter.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


YEAR = 31_536_000
"""Seconds: what has this age at most never changes."""


@dataclass(frozen=True)
class Static:
    """One document."""

    content: bytes
    media_type: str
    max_age: int = 0
    """Seconds for which it need not be asked for again; with 0 every use asks whether it is new."""
    policy: str = ""
    """The `Content-Security-Policy` of a page."""

    @cached_property
    def tag(self) -> str:
        """Its `ETag`; weak, as the compressed bytes are others."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:24]}"'

    @cached_property
    def _encoded(self) -> dict[bytes, bytes]:
        """Its content by coding, as far as somebody asked for it."""
        return {}

    def answer(self, request: Connection) -> Response[bytes]:
        """The document, or 304 when the client has it."""
        age = f"public, max-age={self.max_age}" if self.max_age else "no-cache"
        headers = {
            "ETag": self.tag,
            "Cache-Control": f"{age}, immutable" if self.max_age == YEAR else age,
            "Vary": "Accept-Encoding",
        }
        if self.policy:
            headers["Content-Security-Policy"] = self.policy
        if _has(request.headers.get("if-none-match", ""), self.tag):
            return Response(b"", status_code=HTTP_304_NOT_MODIFIED, headers=headers)
        coding = wanted(request.headers.get("accept-encoding", "").encode("latin-1"))
        if coding is None or len(self.content) <= PACKET:
            return Response(self.content, media_type=self.media_type, headers=headers)
        headers["Content-Encoding"] = coding.decode()
        return Response(self._in(coding), media_type=self.media_type, headers=headers)

    def _in(self, coding: bytes) -> bytes:
        """The content in a coding, which is made once."""
        if coding not in self._encoded:
            self._encoded[coding] = zlib.compress(self.content, wbits=CODINGS[coding])
        return self._encoded[coding]


def _has(tags: str, tag: str) -> bool:
    """Whether `If-None-Match` names the tag, strong or weak (RFC 9110, 13.1.2)."""
    strong = tag.removeprefix("W/")
    named = {part.strip().removeprefix("W/") for part in tags.split(",")}
    return not named.isdisjoint({strong, "*"})
