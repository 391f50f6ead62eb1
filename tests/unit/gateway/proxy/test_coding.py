"""Content codings, of requests and of answers."""

import gzip
import zlib

import pytest

from libs.common.errors import MalformedRequest
from libs.common.http.static import choose_coding
from services.gateway.proxy.coding import UnsupportedCoding, create_decoder, create_encoder

TEXT = b'{"temperature": 21.5}' * 20_000


def raw(content: bytes) -> bytes:
    """What some clients call deflate."""
    encoder = zlib.compressobj(wbits=-15)
    return encoder.compress(content) + encoder.flush()


@pytest.mark.parametrize("size", [1, 1000, 10**9])
@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        (b"gzip", gzip.compress(TEXT)),
        (b"X-GZIP", gzip.compress(TEXT)),
        (b"gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
        (b"deflate", zlib.compress(TEXT)),
        (b"deflate", raw(TEXT)),
    ],
    ids=["gzip", "x-gzip", "two members", "deflate", "raw deflate"],
)
def test_a_body_is_decoded_in_small_pieces(coding: bytes, encoded: bytes, size: int) -> None:
    """Whatever the parts are in which it comes."""
    found = create_decoder(coding)
    assert found is not None
    parts = [encoded[at : at + size] for at in range(0, len(encoded), size)]
    pieces = [
        piece
        for at, part in enumerate(parts)
        for piece in found.decode(part, more=at < len(parts) - 1)
    ]
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) <= 64 * 1024


@pytest.mark.parametrize(
    "body",
    [b"plain", b"", gzip.compress(TEXT)[:-9], gzip.compress(TEXT) + b"more"],
    ids=["plain", "empty", "broken off", "longer"],
)
def test_a_wrongly_encoded_body_is_rejected(body: bytes) -> None:
    """A wrong, an incomplete and a too long body are errors of the client."""
    found = create_decoder(b"gzip")
    assert found is not None
    with pytest.raises(MalformedRequest, match="gzip"):
        list(found.decode(body, more=False))


def test_codings_that_are_known() -> None:
    """`identity` is a plain body; one that nobody decodes is refused by name."""
    assert create_decoder(b"identity") is None
    for name in (b"br", b"gzip, gzip", b"zstd"):
        with pytest.raises(UnsupportedCoding, match="send gzip, deflate") as refused:
            create_decoder(name)
        assert refused.value.field == "Content-Encoding"


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"", None),
        (b"gzip", b"gzip"),
        (b"deflate, gzip;q=0.5", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"br, *", b"gzip"),
        (b"*;q=0", None),
        (b"gzip;q=0.000", None),
        (b"GZIP ; Q=1", b"gzip"),
        (b"gzip;q=x", None),
        (b"br", None),
    ],
)
def test_the_accepted_encodings_of_a_client(accept: bytes, coding: bytes | None) -> None:
    """Weights only exclude encodings."""
    assert choose_coding(accept) == coding


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_an_answer_is_encoded_part_by_part(coding: bytes) -> None:
    """Each part can be read when it arrives; fields tell what was done."""
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", b"5000"),
        (b"etag", b'"x"'),
    ]
    encode = create_encoder(fields, {b"accept-encoding": coding}, "GET")
    assert encode is not None
    assert sorted(fields) == [
        (b"content-encoding", coding),
        (b"content-type", b"application/json"),
        (b"etag", b'W/"x"'),
        (b"vary", b"Accept-Encoding"),
    ]
    reader = zlib.decompressobj(47 if coding == b"gzip" else 15)
    assert reader.decompress(encode(TEXT, True)) == TEXT
    assert reader.decompress(encode(b"end", False)) == b"end"
    assert reader.eof


@pytest.mark.parametrize(
    ("fields", "method", "tells"),
    [
        ({b"content-type": b"application/json", b"content-length": b"1400"}, "GET", False),
        ({b"content-type": b"image/png", b"content-length": b"5000"}, "GET", False),
        ({b"content-type": b"text/csv", b"content-encoding": b"gzip"}, "GET", False),
        ({b"content-length": b"5000"}, "GET", False),
        ({b"content-type": b"text/csv", b"content-length": b"5000"}, "HEAD", True),
    ],
)
def test_an_answer_that_goes_as_it_is(fields: dict[bytes, bytes], method: str, tells: bool) -> None:
    """Small ones, those that would not become smaller, and those without a body."""
    given = list(fields.items())
    assert create_encoder(given, {b"accept-encoding": b"gzip"}, method) is None
    assert ((b"vary", b"Accept-Encoding") in given) == tells
