"""Documents for all users: with ETag, compressed once, cached by clients."""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from litestar import Response
from litestar.status_codes import HTTP_304_NOT_MODIFIED

from libs.common.http.request import Connection

MIN_COMPRESSED_BYTES = 1400
"""Bytes of a network packet: compressing a smaller answer does not make it faster."""
WBITS_BY_CODING = {b"gzip": 31, b"deflate": 15}
"""The `wbits` of zlib for each content coding, the preferred one first."""


@lru_cache(maxsize=256)
def choose_coding(accept: bytes) -> bytes | None:
    """Return the coding that an `Accept-Encoding` requests; None for no compression."""
    weights = {}
    for entry in accept.lower().split(b","):
        name, _, weight = entry.partition(b";")
        weights[name.strip()] = _weight(weight)
    for coding in WBITS_BY_CODING:
        if weights.get(coding, weights.get(b"*", 0.0)) > 0:
            return coding
    return None


def _weight(parameter: bytes) -> float:
    """Return the weight in `q=…`; 1 without one, 0 if it is invalid."""
    name, _, value = parameter.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


YEAR_SECONDS = 31_536_000
"""Seconds: a document with this maximum age never changes."""


@dataclass(frozen=True)
class StaticDocument:
    """A document that is equal for all users."""

    content: bytes
    media_type: str
    max_age: int = 0
    """Seconds for which clients use a copy without a request; with 0, they check the `ETag`."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """The header fields that restrict a page in browsers."""

    @cached_property
    def tag(self) -> str:
        """Return the `ETag` of the document, which is weak, because compressed bytes differ."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:24]}"'

    @cached_property
    def _encoded(self) -> dict[bytes, bytes]:
        """Return the compressed contents by coding, filled on demand."""
        return {}

    def answer(self, request: Connection) -> Response[bytes]:
        """Return the document, or 304 if the client has it."""
        age = f"public, max-age={self.max_age}" if self.max_age else "no-cache"
        headers = {
            "ETag": self.tag,
            "Cache-Control": f"{age}, immutable" if self.max_age == YEAR_SECONDS else age,
            "Vary": "Accept-Encoding",
            **self.policy,
        }
        if _has_tag(request.headers.get("if-none-match", ""), self.tag):
            return Response(b"", status_code=HTTP_304_NOT_MODIFIED, headers=headers)
        coding = choose_coding(request.headers.get("accept-encoding", "").encode("latin-1"))
        if coding is None or len(self.content) <= MIN_COMPRESSED_BYTES:
            return Response(self.content, media_type=self.media_type, headers=headers)
        headers["Content-Encoding"] = coding.decode()
        return Response(self._encode_content(coding), media_type=self.media_type, headers=headers)

    def _encode_content(self, coding: bytes) -> bytes:
        """Return the compressed content, which is computed once."""
        if coding not in self._encoded:
            self._encoded[coding] = zlib.compress(self.content, wbits=WBITS_BY_CODING[coding])
        return self._encoded[coding]


def _has_tag(tags: str, tag: str) -> bool:
    """Return whether `If-None-Match` has the tag, strong or weak (RFC 9110, 13.1.2)."""
    strong = tag.removeprefix("W/")
    listed_tags = {part.strip().removeprefix("W/") for part in tags.split(",")}
    return not listed_tags.isdisjoint({strong, "*"})
