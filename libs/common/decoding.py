"""Bytes of other systems: what their content type says, text of any charset, and JSON."""

import codecs
import re
from email.message import Message
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

INVALID_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding JSON raises: msgspec raises the second for text that is not UTF-8."""

_JSON = re.compile(r"(application|text)/json|[^/]+/[^/]+\+json")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as the mark of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF8 = "utf-8"
_READ_AS_UTF8 = frozenset({"ascii", "idna", "punycode", "unicode_escape", "raw_unicode_escape"})
"""ASCII, which is part of it, and codecs of Python that are the charset of no document."""


def is_json(content_type: str) -> bool:
    """Return whether a content type is JSON: `application/json`, or a type that ends in `+json`."""
    return _JSON.fullmatch(_parsed(content_type).get_content_type()) is not None


def decode_text(body: bytes, content_type: str) -> str:
    """Return a body as text, without its byte order mark, which precedes the charset.

    The charset is UTF-8 where none is named or known; bytes that it has not are replaced.
    """
    return body.decode(_charset(body, content_type), errors="replace")


def decode_json(body: bytes, content_type: str = "", *, type: type[T] | Any = Any) -> Any:  # noqa: A002 - as msgspec calls it
    """Return a body of JSON in any charset as a `type`; raise one of `INVALID_JSON`."""
    charset = _charset(body, content_type)
    return msgspec.json.decode(body if charset == _UTF8 else body.decode(charset), type=type)


def _charset(body: bytes, content_type: str) -> str:
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    try:
        name = codecs.lookup(_parsed(content_type).get_content_charset(_UTF8)).name
        b"a".decode(name, errors="replace")  # a LookupError for `hex` and others without text
    except (LookupError, ValueError):
        return _UTF8
    return _UTF8 if name in _READ_AS_UTF8 else name


def _parsed(content_type: str) -> Message:
    message = Message()
    message["Content-Type"] = content_type
    return message
