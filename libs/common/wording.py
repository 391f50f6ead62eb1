"""What a decoder finds wrong with a value, in words for the person who sent it. No I/O."""

import re
from ast import literal_eval
from collections.abc import Callable
from typing import NamedTuple

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

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_SIGNS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than", "==": "exactly"}
_PARTS = {"str": "characters", "array": "entries", "object": "entries"}


class Wrong(NamedTuple):
    """What is wrong, and where."""

    place: str
    """The way from the value that was read: `widgets[0].data`, empty for that value itself."""
    reason: str
    missing: bool = False
    """Whether the place has to have a value, and has none."""

    @property
    def text(self) -> str:
        """Both, in one sentence."""
        return f"{self.place}: {self.reason}" if self.place else self.reason


def worded(message: str, above: str = "") -> Wrong:
    """Translate what msgspec says; what it says in other words than are known stays.

    `above` is the way to the value that was read.
    """
    found = _PLACE.search(message)
    plain = message[: found.start()] if found else message
    place = above + (found["place"] if found else "")
    field = _FIELD.match(plain)
    if field:
        missing = field["what"] == "missing required"
        reason = "is required" if missing else "is unknown"
        return Wrong(f"{place}.{field['name']}".strip("."), reason, missing)
    return Wrong(place.strip("."), _reason(plain))


def _reason(plain: str) -> str:
    for known, say in _WORDS:
        if match := known.match(plain):
            return say(match)
    return f"{plain[:1].lower()}{plain[1:]}".replace("`", "'")


def _kinds(names: str) -> str:
    return " or ".join(dict.fromkeys(_KINDS.get(name, name) for name in names.split(" | ")))


def _got(match: re.Match[str]) -> str:
    wanted = [name for name in match["kinds"].split(" | ") if name != "null"]
    return f"must be {_kinds(' | '.join(wanted))}, not {_kinds(match['got'])}"


def _bound(match: re.Match[str]) -> str:
    return f"must be {_SIGNS[match['sign']]} {match['bound'].removesuffix('.0')}"


def _length(match: re.Match[str]) -> str:
    parts = _PARTS.get(match["kind"], "entries")
    if (match["sign"], match["bound"]) == (">=", "1"):
        return "must not be empty"
    return f"must have {_SIGNS[match['sign']]} {match['bound']} {parts}"


def _pattern(match: re.Match[str]) -> str:
    return f"must match {literal_eval(match['pattern'])}"


_WORDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_GOT, _got),
    (_BOUND, _bound),
    (_LENGTH, _length),
    (_PATTERN, _pattern),
    (_ENUM, lambda match: f"cannot be {match['value']}"),
)
