"""Reads `value_attribute` of a custom entity: consoles send its numbers as text. No I/O."""

from collections.abc import Mapping
from typing import Any, cast

from libs.common.errors import InvalidInput
from libs.common.things import ValueType
from libs.common.tsl.limits import MAX_SIZE
from services.device.entities.schemas import MOST_OPTIONS
from services.device.members.values import Unread, read_value

FIELD = "value_attribute"
_ALL = ("unit", "format")
_NUMBERS = ("LONG", "DOUBLE")
_TEXTS = ("STRING", "BINARY")
_LONGEST_TEXT = 255
_MOST_DIGITS = 15
_GREATEST = 2**63
_INVALID = "entity_attribute_min_invalid"


def read_attributes(given: Mapping[str, Any], value_type: ValueType) -> dict[str, Any]:
    """The attributes that the type can have; blank ones do not count, unknown ones go.

    Raises `InvalidInput` that names the attribute at fault.
    """
    given = {name: value for name, value in given.items() if value not in (None, "")}
    found: dict[str, Any] = {name: _text(name, given[name]) for name in _ALL if name in given}
    if value_type in _NUMBERS:
        for name in ("min", "max"):
            if name in given:
                found[name] = _number(name, given[name], whole=value_type == "LONG")
        if "fraction_digits" in given:
            found["fraction_digits"] = _size("fraction_digits", given, _MOST_DIGITS)
        _ordered(found, "min", "max")
    if value_type in _TEXTS:
        for name in ("min_length", "max_length"):
            if name in given:
                found[name] = _size(name, given, MAX_SIZE)
        _ordered(found, "min_length", "max_length")
    if given.get("enum"):
        found["enum"] = _enum(given["enum"], value_type)
    if "optional" in given:
        found["optional"] = _flag("optional", given["optional"])
    return found


def _wrong(name: str, reason: str, code: str | None = None) -> InvalidInput:
    return InvalidInput(reason, field=f"{FIELD}.{name}", code=code)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise _wrong(name, f"must be a text of at most {_LONGEST_TEXT} characters")
    return value


def _number(name: str, value: Any, *, whole: bool) -> int | float:
    number = read_value("LONG" if whole else "DOUBLE", value)
    if isinstance(number, Unread) or abs(number) > _GREATEST:
        kind = "an integer" if whole else "a number"
        raise _wrong(name, f"must be {kind}", _INVALID if name == "min" else None)
    return cast("int | float", number)


def _size(name: str, given: Mapping[str, Any], most: int) -> int:
    size = int(_number(name, given[name], whole=True))
    if not 0 <= size <= most:
        raise _wrong(name, f"must be from 0 to {most}")
    return size


def _ordered(found: Mapping[str, Any], low: str, high: str) -> None:
    if low in found and high in found and found[low] > found[high]:
        code = f"entity_attribute_{low}_greater_than_{high}"
        raise _wrong(high, f"must not be less than {low}", code)


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _wrong(name, "must be true or false")


def _enum(given: Any, value_type: ValueType) -> dict[str, str]:
    if value_type not in ("LONG", "STRING"):
        raise _wrong("enum", f"is not for values of type {value_type}")
    if not isinstance(given, dict) or len(given) > MOST_OPTIONS:
        raise _wrong("enum", f"must be an object of at most {MOST_OPTIONS} members")
    for key, label in given.items():
        if not isinstance(label, str) or len(label) > _LONGEST_TEXT or not key:
            raise _wrong(f"enum.{key[:64]}", "must be a label by its value")
        if value_type == "LONG" and str(_number(f"enum.{key[:64]}", key, whole=True)) != key:
            raise _wrong(f"enum.{key[:64]}", "must be an integer in its shortest spelling")
    return dict(given)
