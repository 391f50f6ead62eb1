"""Checks values for entities that people send, with the codes that consoles know.

Consoles send numbers and booleans as text; a value is taken when it can be read as what the
entity is. Notes, section 4. No I/O.
"""

import base64
import binascii
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from libs.common.errors import InvalidInput
from services.device.entities.members import Member

_LONGS = range(-(2**63), 2**63)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}").fullmatch
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?").fullmatch
_HEX = re.compile(r"([0-9A-Fa-f]{2})*").fullmatch
_BOOLEANS: dict[Any, bool] = {"true": True, "false": False, "1": True, "0": False}
_LONGEST_SHOWN = 200
"""Characters of a value that an error repeats."""


class ValueFault(msgspec.Struct):
    """One value that an entity does not take, as answers list it."""

    error_code: str
    error_message: str
    args: dict[str, Any]


class _Mismatch(Exception):
    """The value cannot be read as what the entity is."""


def refuse(faults: Sequence[ValueFault], field: str) -> InvalidInput:
    """400 with all of `faults`; the message is that of the first."""
    return InvalidInput(
        faults[0].error_message, field=field, code="multiple_error", detail=list(faults)
    )


def fault(key: str, member: Member, code: str, reason: str, **args: Any) -> ValueFault:
    """A fault of one value; `args` are for clients that make texts of their own."""
    about = {"entity_key": key, "entity_name": member.name, **args}
    return ValueFault(f"entity_value_{code}", f"entity {member.name} value {reason}", about)


def missing(key: str, member: Member) -> ValueFault:
    """A value that is needed and was not given."""
    return fault(key, member, "null", "must not be null")


def check_value(key: str, member: Member, value: Any) -> tuple[Any, ValueFault | None]:
    """The value as the entity has it, or why it cannot be taken.

    None of an entity that is optional is taken: it counts as not given.
    """
    if value is None:
        return None, None if member.attribute.get("optional") else missing(key, member)
    try:
        read = _read(member, value)
    except _Mismatch:
        reason = f"must be of type {member.value_type}"
        return None, fault(
            key, member, "not_match_type", reason, type=member.value_type, value=_brief(value)
        )
    return read, _bounds(key, member, read)


def _read(member: Member, value: Any) -> Any:
    match member.value_type:
        case "STRING":
            return _text(value)
        case "LONG":
            return _whole(value)
        case "DOUBLE":
            return _number(value)
        case "BOOLEAN":
            return _boolean(value)
        case "BINARY":
            return _base64(value)
        case "OBJECT" if isinstance(value, dict | list):
            return value
    raise _Mismatch


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool() | int() | float():
            return msgspec.json.encode(value).decode()
    raise _Mismatch


def _whole(value: Any) -> int:
    match value:
        case bool():
            raise _Mismatch
        case int():
            number = value
        case float() if value.is_integer():
            number = int(value)
        case str() if _WHOLE(value.strip()):
            number = int(value)
        case str() if _NUMBER(value.strip()):
            return _whole(_number(value)) if float(value).is_integer() else _mismatch()
        case _:
            raise _Mismatch
    return number if number in _LONGS else _mismatch()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Mismatch
    if isinstance(value, str) and not _NUMBER(value.strip()):
        raise _Mismatch
    try:
        number = float(value)
    except OverflowError:
        raise _Mismatch from None
    return number if math.isfinite(number) else _mismatch()


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str):
        found = _BOOLEANS.get(str(value).strip().lower())
        if found is not None:
            return found
    raise _Mismatch


def _base64(value: Any) -> str:
    try:
        base64.b64decode(value if isinstance(value, str) else _mismatch(), validate=True)
    except (binascii.Error, ValueError):
        raise _Mismatch from None
    return str(value)


def _mismatch() -> Any:
    raise _Mismatch


def _bounds(key: str, member: Member, value: Any) -> ValueFault | None:
    rules = member.attribute
    if "enum" in rules:
        if str(value) in rules["enum"]:
            return None
        allowed = ", ".join(list(rules["enum"])[:50])
        return fault(key, member, "invalid_enum", f"must be one of {allowed}", value=_brief(value))
    if member.value_type in ("LONG", "DOUBLE"):
        return _range(key, member, value)
    if member.value_type in ("STRING", "BINARY"):
        return _length(key, member, value) or _format(key, member, value)
    return None


def _range(key: str, member: Member, value: float) -> ValueFault | None:
    low, high = member.attribute.get("min"), member.attribute.get("max")
    if (low is None or value >= low) and (high is None or value <= high):
        return None
    if low is not None and high is not None:
        code, reason = "out_of_range", f"must be in [{low}, {high}]"
    elif low is not None:
        code, reason = "less_than_min", f"must be at least {low}"
    else:
        code, reason = "greater_than_max", f"must be at most {high}"
    return fault(key, member, code, reason, **_given(min=low, max=high), value=value)


def _length(key: str, member: Member, value: str) -> ValueFault | None:
    low, high = member.attribute.get("min_length"), member.attribute.get("max_length")
    if (low is None or len(value) >= low) and (high is None or len(value) <= high):
        return None
    if low is not None and high is not None:
        code, reason = "length_out_of_range", f"must have {low} to {high} characters"
    elif low is not None:
        code, reason = "length_shorter_than_min_length", f"must have at least {low} characters"
    else:
        code, reason = "length_longer_than_max_length", f"must have at most {high} characters"
    bounds = _given(min_length=low, max_length=high)
    return fault(key, member, code, reason, **bounds, value=_brief(value))


def _format(key: str, member: Member, value: str) -> ValueFault | None:
    if member.attribute.get("format") != "HEX" or _HEX(value):
        return None
    return fault(key, member, "not_match_format", "must be HEX", format="HEX", value=_brief(value))


def _given(**bounds: Any) -> dict[str, Any]:
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _brief(value: Any) -> Any:
    """The value, as far as it can be repeated in an answer."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return value if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN]
