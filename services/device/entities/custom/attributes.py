"""Reads `value_attribute` of a custom entity: consoles send its numbers as text. No I/O."""

import math
from collections.abc import Mapping
from typing import Any

from libs.common.errors import InvalidInput
from libs.common.things import ValueType
from libs.common.tsl.limits import MAX_SIZE
from services.device.entities.schemas import MOST_OPTIONS

FIELD = "value_attribute"
_NUMBERS = ("LONG", "DOUBLE")
_TEXTS = ("STRING", "BINARY")
_LONGEST_TEXT = 255
_MOST_DIGITS = 15


def read_attributes(given: Mapping[str, Any], value_type: ValueType) -> dict[str, Any]:
    """The attributes that the type can have; blank ones do not count, unknown ones go.

    Raises `InvalidInput` that names the attribute at fault.
    """
    found: dict[str, Any] = {}
    for name in ("unit", "format"):
        if _present(given.get(name)):
            found[name] = _text(name, given[name])
    if value_type in _NUMBERS:
        for name in ("min", "max"):
            if _present(given.get(name)):
                found[name] = _number(name, given[name], whole=value_type == "LONG")
        if _present(given.get("fraction_digits")):
            found["fraction_digits"] = _size("fraction_digits", given, _MOST_DIGITS)
        _ordered(found, "min", "max")
    if value_type in _TEXTS:
        for name in ("min_length", "max_length"):
            if _present(given.get(name)):
                found[name] = _size(name, given, MAX_SIZE)
        _ordered(found, "min_length", "max_length")
    if given.get("enum"):
        found["enum"] = _enum(given["enum"], value_type)
    if _present(given.get("optional")):
        found["optional"] = _flag("optional", given["optional"])
    return found


def _present(value: Any) -> bool:
    return value is not None and value != ""


def _wrong(name: str, reason: str) -> InvalidInput:
    return InvalidInput(reason, field=f"{FIELD}.{name}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise _wrong(name, f"must be a text of at most {_LONGEST_TEXT} characters")
    return value


def _number(name: str, value: Any, *, whole: bool) -> int | float:
    kind = "an integer" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(name, f"must be {kind}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _wrong(name, f"must be {kind}") from None
    if not math.isfinite(number) or abs(number) > 2**63 or (whole and not number.is_integer()):
        raise _wrong(name, f"must be {kind}")
    if not whole:
        return number
    try:
        return int(value)  # exactly, where a float is not
    except ValueError:  # "1.0", which is an integer, too
        return int(number)


def _size(name: str, given: Mapping[str, Any], most: int) -> int:
    size = int(_number(name, given[name], whole=True))
    if not 0 <= size <= most:
        raise _wrong(name, f"must be from 0 to {most}")
    return size


def _ordered(found: Mapping[str, Any], low: str, high: str) -> None:
    if low in found and high in found and found[low] > found[high]:
        raise _wrong(high, f"must not be less than {low}")


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
