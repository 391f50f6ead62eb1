"""Decoding of external values: charsets, JSON, numbers, validation errors."""

import codecs
import re
from ast import literal_eval
from collections.abc import Callable
from email.message import Message
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding JSON: msgspec raises the second for text that is not UTF-8."""

_JSON = re.compile(r"(application|text)/json|[^/]+/[^/]+\+json")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is a prefix
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF8 = "utf-8"
_CODECS_READ_AS_UTF8 = frozenset(
    {"ascii", "idna", "punycode", "unicode_escape", "raw_unicode_escape"}
)
"""ASCII, a subset of UTF-8, and codecs of Python that are no charsets of documents."""


def copy_fields(kind: type[S], source: Any, **more: Any) -> S:
    """Return a `kind` from the equally named attributes of `source`, and `more`."""
    names = (name for name in kind.__struct_fields__ if hasattr(source, name))
    return kind(**{name: getattr(source, name) for name in names} | more)


def is_json(content_type: str) -> bool:
    """Return whether a content type is `application/json`, `text/json` or `…+json`."""
    return _JSON.fullmatch(_parsed(content_type).get_content_type()) is not None


def decode_text(body: bytes, content_type: str) -> str:
    """Return a body as text; a byte order mark overrides the charset and is removed.

    The default charset is UTF-8; undecodable bytes are replaced.
    """
    return body.decode(_charset(body, content_type), errors="replace")


def decode_json(body: bytes, content_type: str = "", *, type: type[T] | Any = Any) -> Any:  # noqa: A002 - the name in msgspec
    """Decode a JSON body in any charset to `type`; raise one of `JSON_ERRORS`."""
    charset = _charset(body, content_type)
    return msgspec.json.decode(body if charset == _UTF8 else body.decode(charset), type=type)


def _charset(body: bytes, content_type: str) -> str:
    for mark, name in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return name
    try:
        name = codecs.lookup(_parsed(content_type).get_content_charset(_UTF8)).name
        b"a".decode(name, errors="replace")  # LookupError for codecs of bytes such as `hex`
    except (LookupError, ValueError):
        return _UTF8
    return _UTF8 if name in _CODECS_READ_AS_UTF8 else name


def _parsed(content_type: str) -> Message:
    message = Message()
    message["Content-Type"] = content_type
    return message


_NUMBER = re.compile(
    r"[+-]?(?:([0-9]+)|(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?)"
)
_MAX_DIGITS = 400
"""Maximum characters of a number. `toFixed` returns fewer; Python reads at most 4,300 digits."""


def parse_number(text: str) -> int | float | None:
    """Return the decimal number in `text`, which has no blanks or unit, else None.

    Digits alone are an integer of any size; other numbers are floats, infinite beyond 1e308.
    """
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_DIGITS else None
    if match is None:
        return None
    return int(text) if match[1] else float(text)


_PLACE = re.compile(r" - at `(?:key in )?\$(?P<place>[^`]*)`$")
_FIELD = re.compile(
    "Object (?P<what>missing required|contains unknown) field [`'](?P<name>.+)[`']$"
)
_GOT = re.compile("Expected [`'](?P<kinds>[^`']+)[`'], got [`'](?P<got>[^`']+)[`']$")
_BOUND = re.compile("Expected [`'](?P<kind>[^`']+)[`'] (?P<sign>>=|<=|>|<) (?P<bound>.+)$")
_LENGTH = re.compile(
    "Expected [`'](?P<kind>[^`']+)[`'] of length (?P<sign>>=|<=|==) (?P<bound>[0-9]+)$"
)
_PATTERN = re.compile(
    r"Expected [`'][^`']+[`'] matching regex (?P<pattern>'.*'|\".*\")$", re.DOTALL
)
_ENUM = re.compile("Invalid enum value (?P<value>.*)$", re.DOTALL)

_WORDS_BY_TYPE = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_WORDS_BY_SIGN = {
    ">=": "at least",
    "<=": "at most",
    ">": "more than",
    "<": "less than",
    "==": "exactly",
}
_LENGTH_UNIT_BY_TYPE = {"str": "characters", "array": "entries", "object": "entries"}


class InputFault(NamedTuple):
    """An invalid value and the reason."""

    place: str
    """The path to the value: `widgets[0].data`, empty for the decoded value itself."""
    reason: str
    missing: bool = False
    """Whether a required value is missing."""

    @property
    def text(self) -> str:
        """Return path and reason in one sentence."""
        return f"{self.place}: {self.reason}" if self.place else self.reason


def parse_validation_error(message: str, above: str = "") -> InputFault:
    """Translate an error message of msgspec; unknown messages are kept.

    `above` is the path to the decoded value.
    """
    match = _PLACE.search(message)
    plain = message[: match.start()] if match else message
    place = above + (match["place"] if match else "")
    field = _FIELD.match(plain)
    if field:
        missing = field["what"] == "missing required"
        reason = "is required" if missing else "is unknown"
        return InputFault(f"{place}.{field['name']}".strip("."), reason, missing)
    return InputFault(place.strip("."), _translate_reason(plain))


def _translate_reason(plain: str) -> str:
    for pattern, describe in _REASON_TRANSLATIONS:
        if match := pattern.match(plain):
            return describe(match)
    return f"{plain[:1].lower()}{plain[1:]}".replace("`", "'")


def _name_types(names: str) -> str:
    return " or ".join(dict.fromkeys(_WORDS_BY_TYPE.get(name, name) for name in names.split(" | ")))


def _describe_type(match: re.Match[str]) -> str:
    kinds = [name for name in match["kinds"].split(" | ") if name != "null"]
    return f"must be {_name_types(' | '.join(kinds))}, not {_name_types(match['got'])}"


def _describe_bound(match: re.Match[str]) -> str:
    return f"must be {_WORDS_BY_SIGN[match['sign']]} {match['bound'].removesuffix('.0')}"


def _describe_length(match: re.Match[str]) -> str:
    parts = _LENGTH_UNIT_BY_TYPE.get(match["kind"], "entries")
    if (match["sign"], match["bound"]) == (">=", "1"):
        return "must not be empty"
    return f"must have {_WORDS_BY_SIGN[match['sign']]} {match['bound']} {parts}"


def _describe_pattern(match: re.Match[str]) -> str:
    return f"must match {literal_eval(match['pattern'])}"


_REASON_TRANSLATIONS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_GOT, _describe_type),
    (_BOUND, _describe_bound),
    (_LENGTH, _describe_length),
    (_PATTERN, _describe_pattern),
    (_ENUM, lambda match: f"cannot be {match['value']}"),
)
