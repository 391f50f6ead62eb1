"""Values of entities that users send, and the errors of rejected ones. No I/O.

Consoles send numbers and booleans as text, and know errors by codes of their own. Whether a value
is valid is decided by the TSL of its thing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from libs.common.contracts.integrations import MISSING_SETTING_CODE
from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.things import ValueType, member_key
from libs.common.tsl import Fault
from libs.common.tsl.limits import LONG_RANGE
from services.device.members.members import Member, MemberSet

_PYTHON_TYPE_BY_VALUE_TYPE: dict[ValueType, Any] = {
    "LONG": Annotated[int, msgspec.Meta(ge=LONG_RANGE[0], le=LONG_RANGE[1])],
    "DOUBLE": float,
    "BOOLEAN": bool,
    "STRING": str,
    "BINARY": str,
    "OBJECT": dict[str, Any] | list[Any],
}
_match_number = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?").fullmatch
_MAX_SHOWN_CHARACTERS = 200
"""Maximum characters of a value that an error repeats."""
_BOUNDS_ERRORS_BY_FAULT_CODE = {
    "range": (
        ("min", "max"),
        ("out_of_range", "must be in [{}, {}]"),
        ("less_than_min", "must be at least {}"),
        ("greater_than_max", "must be at most {}"),
    ),
    "size": (
        ("min_length", "max_length"),
        ("length_out_of_range", "must have {} to {} characters"),
        ("length_shorter_than_min_length", "must have at least {} characters"),
        ("length_longer_than_max_length", "must have at most {} characters"),
    ),
}
"""By kind of fault: names of both bounds, then code and text for both, the lower and the upper."""


class ValueFault(msgspec.Struct):
    """One rejected value, as answers list it."""

    error_code: str
    error_message: str
    args: dict[str, Any]


class UnreadableValue:
    """A value that cannot be converted to its entity's type; every TSL rejects it."""

    def __init__(self, value: Any) -> None:
        self.given = value


def convert_value(kind: ValueType, given: Any) -> Any:
    """Return the value in the type of the entity, or `UnreadableValue`; keep null."""
    if given is None:
        return None
    value = given.strip() if isinstance(given, str) and kind not in ("STRING", "BINARY") else given
    if kind in ("LONG", "DOUBLE") and isinstance(value, str) and _match_number(value):
        try:
            value = int(value)  # an int, because a float may not be exact
        except ValueError:
            value = float(value)
    if kind == "STRING" and isinstance(value, bool | int | float):
        value = msgspec.json.encode(value).decode()
    try:
        return msgspec.convert(
            value, _PYTHON_TYPE_BY_VALUE_TYPE[kind], strict=kind not in ("LONG", "BOOLEAN")
        )
    except msgspec.ValidationError:
        return UnreadableValue(given)


def set_value_at_path(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value at a path and create the objects above it.

    An object at the path is merged. If an object above is null or unreadable, nothing is set.
    """
    *above, last = path
    for name in above:
        inner = values.setdefault(name, {})
        if inner is None or isinstance(inner, UnreadableValue):
            return
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    known = values.get(last)
    if isinstance(known, dict) and isinstance(value, dict):
        known.update(value)
    else:
        values[last] = value


def error_with_all_faults(field: str, faults: Sequence[ValueFault]) -> InvalidInput:
    """Return 400 with all faults; message and field are those of the first."""
    first = faults[0]
    return InvalidInput(
        first.error_message,
        field=f"{field}.{first.args['entity_key']}",
        code="multiple_error",
        detail=list(faults),
    )


def integration_fault(key: str, member: Member, code: str, text: str) -> ValueFault:
    """Return the fault of a value that its TSL accepts and an integration rejects.

    `text` is the reason, with or without the member's name in front. Consoles show it as the
    expected format. For `MISSING_SETTING_CODE` they show their own text.
    """
    args = {"entity_key": key, "entity_name": member.name}
    if code == MISSING_SETTING_CODE:
        return ValueFault(code, text, args)
    args["format"] = text.removeprefix(f"{member.path.rpartition('.')[2]}: ")
    return ValueFault("entity_value_not_match_format", text, args)


def integration_rejection(field: str | None, error: InvalidInput) -> InvalidInput:
    """Return 400 for an error in which an integration does not name the wrong input."""
    if error.code not in (InvalidInput.code, MalformedRequest.code):
        return InvalidInput(error.message, field=field, code=error.code)
    text = error.message
    return InvalidInput(text, field=field, code="gateway_respond_error", detail={"error": text})


def convert_faults(
    key: str, members: MemberSet, above: str, faults: Iterable[Fault]
) -> list[ValueFault]:
    """Convert the faults that a TSL found to faults of members; `key` is the key of the thing.
    `above` is the path of the member that contains the values, empty for properties. Faults inside
    values, such as elements of an ARRAY, are omitted if whole values are wrong.
    """
    placed = []
    for fault in faults:
        path = ".".join(filter(None, (above, fault.path.partition(".")[2])))
        placed.append((fault, path, _find_nearest_member(members, path)))
    whole = [
        (fault, path, member)
        for fault, path, member in placed
        if member is not None and member.path in (path, above)
    ]
    return [_convert_fault(key, *placed_fault) for placed_fault in whole or placed]


def _convert_fault(key: str, fault: Fault, path: str, member: Member | None) -> ValueFault:
    about: dict[str, Any] = {"entity_key": member_key(key, path)}
    if member is None:
        args = about | {"entity_name": path or key, "required_type": "OBJECT"}
        return ValueFault("entity_value_not_match_type", fault.reason, args)
    code, reason, args = _describe_fault(member, fault, whole=member.path == path)
    about |= {"entity_name": member.name, **args}
    return ValueFault(f"entity_value_{code}", f"entity {member.name} value {reason}", about)


def _find_nearest_member(members: MemberSet, path: str) -> Member | None:
    """Return the member at a path, otherwise its nearest ancestor, or None if neither exists."""
    while path not in members.by_path and path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return members.by_path.get(path)


def _describe_fault(
    member: Member, fault: Fault, *, whole: bool
) -> tuple[str, str, dict[str, Any]]:
    """Return code, text and arguments of a fault; `whole` if it concerns the whole value.

    Consoles put the arguments (`required_type`, `min`, …) into their own text for the code.
    """
    if fault.code == "null":
        return "null", "must not be null", {}
    kind, form, value = member.value_type, member.attribute.get("format"), fault.args.get("value")
    arguments = {"value": _shorten(value.given if isinstance(value, UnreadableValue) else value)}
    match fault.code if whole else "other":
        case "choice":
            return "invalid_enum", fault.reason, arguments
        case "encoding" if form:
            return "not_match_format", fault.reason, {"format": form, **arguments}
        case "range" | "size" as code if bounds := _bounds_error(member, code):
            return bounds[0], bounds[1], bounds[2] | arguments
        case "type" | "encoding" as code if code == "type" or kind == "BINARY":
            args = {"required_type": kind, "type": kind, **arguments}
            return "not_match_type", f"must be of type {kind}", args
    return "not_match_type", fault.reason, {"required_type": kind}


def _bounds_error(member: Member, code: str) -> tuple[str, str, dict[str, Any]] | None:
    """Return code, text and arguments of the error of a value beyond a member's bounds.

    Return None if the member has no bounds of this kind.
    """
    names, both, lower, upper = _BOUNDS_ERRORS_BY_FAULT_CODE[code]
    bounds = {name: member.attribute[name] for name in names if name in member.attribute}
    if not bounds:
        return None
    error_code, words = both if len(bounds) > 1 else lower if names[0] in bounds else upper
    return error_code, words.format(*bounds.values()), bounds


def _shorten(value: Any) -> Any:
    """Return the value, or the first 200 characters of its text or JSON if that is longer."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return value if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS]
