"""Content codings (RFC 9110, 8.4) of requests and answers."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from libs.common.errors import MalformedRequest, UnsupportedMedia
from libs.common.http.static import MIN_COMPRESSED_BYTES, WBITS_BY_CODING, choose_coding

_RAW_DEFLATE_BITS = -15
"""zlib's `wbits` for deflate without a zlib header, which some clients send as `deflate`."""
_PIECE_BYTES = 64 * 1024
"""Maximum decoded bytes per piece."""
_COMPRESSION_LEVEL = 1
"""zlib's fastest level. For history, level 6 saves another fifth and takes four times as long."""
_COMPRESSED_TYPES = (b"text/", b"application/json", b"image/svg+xml")

HeaderField = tuple[bytes, bytes]


class UnsupportedCoding(UnsupportedMedia):
    """415: the coding of the body is not supported."""


def create_decoder(name: bytes) -> "BodyDecoder | None":
    """Return the decoder of a `Content-Encoding`; None for a plain body.

    Raises `UnsupportedCoding`.
    """
    coding = name.strip().lower().removeprefix(b"x-")
    if coding in {b"", b"identity"}:
        return None
    if coding not in WBITS_BY_CODING:
        raise UnsupportedCoding("send gzip, deflate or a plain body", field="Content-Encoding")
    return BodyDecoder(coding)


class BodyDecoder:
    """Decodes a body, part by part."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._zlib = zlib.decompressobj(WBITS_BY_CODING[coding]) if coding == b"gzip" else None

    def decode(self, part: bytes, *, more: bool) -> Iterator[bytes]:
        """Yield pieces of at most 64 KiB of a decoded part; raise `MalformedRequest`."""
        try:
            yield from self._decode_pieces(part)
        except zlib.error as error:
            raise MalformedRequest(f"the body is not {self._coding.decode()}") from error
        if not more and not (self._zlib and self._zlib.eof):
            raise MalformedRequest(f"the body ends before its {self._coding.decode()} does")

    def _decode_pieces(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._zlib is None:
                self._zlib = zlib.decompressobj(_zlib_window_bits(part))
            elif self._zlib.eof:  # another member (RFC 1952, 2.2), or invalid data
                self._zlib = zlib.decompressobj(WBITS_BY_CODING[self._coding])
            piece = self._zlib.decompress(part, _PIECE_BYTES)
            yield piece
            while len(piece) == _PIECE_BYTES:
                piece = self._zlib.decompress(self._zlib.unconsumed_tail, _PIECE_BYTES)
                yield piece
            part = self._zlib.unused_data


def _zlib_window_bits(start: bytes) -> int:
    """Return zlib's `wbits` for the first byte of a body: a zlib header has method 8."""
    return WBITS_BY_CODING[b"deflate"] if start[0] & 0x0F == zlib.DEFLATED else _RAW_DEFLATE_BITS


EncodePart = Callable[[bytes, bool], bytes]
"""Encodes a part of an answer; the second argument is whether more parts follow."""


def create_encoder(
    fields: list[HeaderField], request_fields: Mapping[bytes, bytes], method: str
) -> EncodePart | None:
    """Return the encoder for a large answer; None for an answer without encoding.

    `fields` are the headers of the answer, which are adjusted. `request_fields` are those of the
    request.
    """
    answer_fields = dict(fields)
    length = int(answer_fields.get(b"content-length", MIN_COMPRESSED_BYTES + 1))
    if (
        length <= MIN_COMPRESSED_BYTES
        or not answer_fields.get(b"content-type", b"").startswith(_COMPRESSED_TYPES)
        or b"content-encoding" in answer_fields
    ):
        return None
    fields.append((b"vary", b"Accept-Encoding"))
    coding = choose_coding(request_fields.get(b"accept-encoding", b""))
    if coding is None or method == "HEAD":
        return None
    fields[:] = [_mark_encoded(field) for field in fields if field[0] != b"content-length"]
    fields.append((b"content-encoding", coding))
    return partial(
        _encode_part, zlib.compressobj(_COMPRESSION_LEVEL, wbits=WBITS_BY_CODING[coding])
    )


def _mark_encoded(field: HeaderField) -> HeaderField:
    """Return a header field of an encoded answer, whose `ETag` must be weak."""
    name, value = field
    return (name, b"W/" + value) if name == b"etag" and not value.startswith(b"W/") else field


def _encode_part(encoder: "zlib._Compress", part: bytes, more: bool) -> bytes:  # noqa: FBT001 - the type is `EncodePart`
    """Return the encoded part, flushed, because a client may wait for it."""
    return encoder.compress(part) + encoder.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
