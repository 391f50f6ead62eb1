"""Content codings (RFC 9110, 8.4): bodies of requests are decoded, answers encoded when asked."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from libs.common.errors import MalformedRequest, UnsupportedMedia
from libs.common.http.static import CODINGS, PACKET, wanted

_RAW = -15
"""What some clients send as `deflate`: without zlib's frame."""
_PIECE = 64 * 1024
"""Bytes that are decoded at a time."""
_LEVEL = 1
"""Of 9: the second halves what is left, for four times the work."""
_TEXTUAL = (b"text/", b"application/json", b"image/svg+xml")

Field = tuple[bytes, bytes]


class UnknownCoding(UnsupportedMedia):
    """415: the body is encoded in a way that is not read here."""


def decoder(name: bytes) -> "Decoder | None":
    """What decodes a body of this `Content-Encoding`, None for a plain one.

    Raises `UnknownCoding`.
    """
    coding = name.strip().lower().removeprefix(b"x-")
    if coding in {b"", b"identity"}:
        return None
    if coding not in CODINGS:
        raise UnknownCoding("send gzip, deflate or a plain body", field="Content-Encoding")
    return Decoder(coding)


class Decoder:
    """Decodes one body, part by part."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._zlib = zlib.decompressobj(CODINGS[coding]) if coding == b"gzip" else None

    def decode(self, part: bytes, *, more: bool) -> Iterator[bytes]:
        """The pieces of a part, each of 64 KiB at most; raises `MalformedRequest`."""
        try:
            yield from self._pieces(part)
        except zlib.error as error:
            raise MalformedRequest(f"the body is not {self._coding.decode()}") from error
        if not more and not (self._zlib and self._zlib.eof):
            raise MalformedRequest(f"the body ends before its {self._coding.decode()} does")

    def _pieces(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._zlib is None:
                self._zlib = zlib.decompressobj(_window(part))
            elif self._zlib.eof:  # a further member (RFC 1952, 2.2), or what does not belong there
                self._zlib = zlib.decompressobj(CODINGS[self._coding])
            piece = self._zlib.decompress(part, _PIECE)
            yield piece
            while len(piece) == _PIECE:
                piece = self._zlib.decompress(self._zlib.unconsumed_tail, _PIECE)
                yield piece
            part = self._zlib.unused_data


def _window(start: bytes) -> int:
    """zlib's window for a body that begins so: its frame has a method of 8."""
    return CODINGS[b"deflate"] if start[0] & 0x0F == zlib.DEFLATED else _RAW


Encode = Callable[[bytes, bool], bytes]
"""Encodes a part of an answer; the second argument tells whether more follows."""


def encoder_for(fields: list[Field], asked: Mapping[bytes, bytes], method: str) -> Encode | None:
    """What encodes a large answer for its client, None when it goes as it is.

    `fields` are those of the answer, which are changed to what it is then; `asked` are those
    of the request.
    """
    given = dict(fields)
    length = int(given.get(b"content-length", PACKET + 1))
    if (
        length <= PACKET
        or not given.get(b"content-type", b"").startswith(_TEXTUAL)
        or b"content-encoding" in given
    ):
        return None
    fields.append((b"vary", b"Accept-Encoding"))
    coding = wanted(asked.get(b"accept-encoding", b""))
    if coding is None or method == "HEAD":
        return None
    fields[:] = [_of_encoded(field) for field in fields if field[0] != b"content-length"]
    fields.append((b"content-encoding", coding))
    return partial(_encode, zlib.compressobj(_LEVEL, wbits=CODINGS[coding]))


def _of_encoded(field: Field) -> Field:
    """A field that describes the encoded answer: its tag is no longer that of these bytes."""
    name, value = field
    return (name, b"W/" + value) if name == b"etag" and not value.startswith(b"W/") else field


def _encode(encoder: "zlib._Compress", part: bytes, more: bool) -> bytes:  # noqa: FBT001 - as sent
    """The part is told at once: a client may wait for it."""
    return encoder.compress(part) + encoder.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
