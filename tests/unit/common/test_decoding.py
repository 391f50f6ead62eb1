"""Bodies of other systems: JSON, and text of any charset."""

import codecs

import msgspec
import pytest

from libs.common.decoding import JSON_ERRORS, copy_fields, decode_json, decode_text, is_json


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        ("application/json", True),
        ('Application/JSON; charset="utf-8"', True),
        ("application/problem+json", True),
        ("application/vnd.x+json; v=1", True),
        ("text/json", True),
        ("application/jsonlines", False),
        ("application/json-seq", False),
        ("application/x-ndjson", False),
        ("text/x-notjson", False),
        ("text/plain; x=application/json", False),
        ("json", False),
        ("", False),
    ],
)
def test_json_is_known_by_its_media_type(content_type: str, json: bool) -> None:
    """Not by the letters somewhere in it."""
    assert is_json(content_type) is json


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("ä".encode(), ""),
        ("ä".encode(), "text/plain; charset=us-ascii"),
        ("ä".encode("latin-1"), "text/plain; charset=ISO-8859-1"),
        ("ä".encode("cp1252"), 'text/plain; charset="windows-1252"'),
        ("ä".encode("utf-16-le"), "text/plain; charset=utf-16le"),
        ("ä".encode("utf-8-sig"), "text/plain; charset=latin-1"),
        ("ä".encode("utf-16"), "text/plain"),
        ("ä".encode("utf-32"), "text/plain; charset=utf-8"),
        (codecs.BOM_UTF16_BE + "ä".encode("utf-16-be"), ""),
        ("ä".encode(), "text/plain; charset=nonsense"),
        ("ä".encode(), "text/plain; charset=hex"),
        ("ä".encode(), "text/plain; charset=undefined"),
        ("ä".encode(), "text/plain; charset=punycode"),
    ],
)
def test_text_is_decoded_by_its_mark_or_charset(body: bytes, content_type: str) -> None:
    """The mark precedes; UTF-8 is what is left."""
    assert decode_text(body, content_type) == "ä"
    quote = '"'.encode("utf-16-le") if "utf-16le" in content_type else None
    if quote is not None:
        assert decode_json(quote + body + quote, content_type) == "ä"


def test_bytes_that_are_no_text_are_replaced() -> None:
    """A body is never lost for one of them."""
    assert decode_text(b"a\xff", "text/plain") == "a\ufffd"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_json_is_decoded_with_a_mark(encoding: str) -> None:
    """As values."""
    assert decode_json('{"a": "ä"}'.encode(encoding)) == {"a": "ä"}


@pytest.mark.parametrize("body", [b"{", b'"\xff"', b"[" * 5000, b"", b"\xff\xfe\x00"])
def test_invalid_json_has_one_error(body: bytes) -> None:
    """All exceptions of the decoder are converted."""
    with pytest.raises(JSON_ERRORS):
        decode_json(body)


class Stored(msgspec.Struct):
    """What is copied."""

    name: str
    secret: str


class Answer(msgspec.Struct):
    """What it is copied to."""

    id: int
    name: str


def test_a_struct_gets_the_fields_of_the_same_name_and_those_that_are_given():
    assert copy_fields(Answer, Stored("Roof", "x"), id=1) == Answer(1, "Roof")
    assert copy_fields(Answer, Stored("Roof", "x"), id=1, name="Cellar") == Answer(1, "Cellar")
