"""Checks of values one by one, with a fault for each invalid value.

Writes use these checks, and reports that the decoders of `_decoders` reject. Devices may use two
more forms: an integral float for an integer, and an integer for the key of an ENUM.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from libs.common.tsl._node import Node, round_number
from libs.common.tsl._write_only import MASK, UNKNOWN_REASON, mask_fault
from libs.common.tsl.faults import Code, Fault
from libs.common.tsl.limits import MAX_KEY_LENGTH

PATTERN_BY_ENCODING = {
    "HEX": r"\A(?:[0-9A-Fa-f]{2})*\Z",
    "ASCII": r"\A[\x00-\x7f]*\Z",
    "BASE64": r"\A(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z",
}
"""Patterns of text by encoding; UTF8 permits any text."""

_SEARCH_BY_ENCODING = {
    name: re.compile(pattern).search for name, pattern in PATTERN_BY_ENCODING.items()
}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _ScalarRejected(Exception):
    """A scalar is invalid; internal, `args` are reason and code."""


def check_value(
    node: Node, value: object, path: str, faults: list[Fault], *, keep_parts: bool = False
) -> Any:
    """Return `value` as it is stored; if it is invalid, add to `faults`.

    Numbers of FLOAT and DOUBLE become rounded floats, keys of an ENUM strings.
    """
    if node.kind == "STRUCT" and isinstance(value, dict):
        return check_members(node.members, value, path, faults, keep_parts=keep_parts)
    if node.kind == "ARRAY" and isinstance(value, list):
        return _check_elements(node, value, path, faults)
    try:
        return _check_scalar(node, value)
    except _ScalarRejected as rejected:
        return faults.append(_fault(path, rejected, value))


def _fault(path: str, rejected: _ScalarRejected, value: object) -> Fault:
    reason, code = rejected.args
    return Fault(path, reason, code, {"value": value})


def check_members(
    members: Mapping[str, Node],
    value: Mapping[str, object],
    path: str,
    faults: list[Fault],
    *,
    keep_parts: bool = False,
) -> dict[str, Any]:
    """Return an object's valid members; unknown and missing required ones are faults."""
    good = check_given_members(members, value, path, faults, keep_parts=keep_parts)
    for key, node in members.items():
        if node.required and node.readable and key not in value:
            faults.append(Fault(f"{path}.{key}", "is required", "null"))
    return good


def check_given_members(
    members: Mapping[str, Node],
    value: Mapping[str, object],
    path: str,
    faults: list[Fault],
    *,
    keep_parts: bool = False,
) -> dict[str, Any]:
    """Return the valid members of `value`; missing ones are no faults.

    A STRUCT with a fault is rejected, or with `keep_parts` reduced to its valid members.
    """
    good: dict[str, Any] = {}
    for key, item in value.items():
        place = f"{path}.{str(key)[:MAX_KEY_LENGTH]}"
        node = members.get(key)
        if node is None:
            faults.append(Fault(place, UNKNOWN_REASON))
            continue
        if not node.readable:
            faults.append(Fault(place, "is write-only", "write_only", {"value": MASK}))
            continue
        before = len(faults)
        checked = check_value(node, item, place, faults, keep_parts=keep_parts)
        if node.conceals:
            faults[before:] = map(mask_fault, faults[before:])
        if len(faults) == before or (keep_parts and node.kind == "STRUCT" and checked):
            good[key] = checked
    return good


def _check_elements(node: Node, value: list[object], path: str, faults: list[Fault]) -> Any:
    try:
        _check_size(node, len(value), "elements")
    except _ScalarRejected as rejected:
        return faults.append(_fault(path, rejected, value))
    element = node.element
    if element is None:
        return faults.append(Fault(path, "has no element type"))
    return [check_value(element, item, f"{path}[{at}]", faults) for at, item in enumerate(value)]


def _check_scalar(node: Node, value: object) -> Any:  # noqa: PLR0911 - one type after the other
    if value is None:
        return _reject("must not be null", "null")
    match node.kind:
        case "BOOL":
            return value if isinstance(value, bool) else _reject("must be true or false")
        case "INT" | "LONG" | "DATE":
            return _check_bounds(node, _check_integer(value))
        case "FLOAT" | "DOUBLE":
            return round_number(node, _check_bounds(node, _check_number(value)))
        case "ENUM":
            return _check_choice(node, value)
        case "STRING":
            return _check_text(node, value)
        case kind:
            return _reject("must be an object" if kind == "STRUCT" else "must be an array")


def _reject(reason: str, code: Code = "type") -> NoReturn:
    raise _ScalarRejected(reason, code)


def _check_integer(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    _reject("must be an integer")


def _check_number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _reject("must be a number")
    try:
        number = float(value)
    except OverflowError:
        _reject("must be finite")
    return number if math.isfinite(number) else _reject("must be finite")


def _check_bounds(node: Node, number: float) -> float:
    if node.low is not None and number < node.low:
        _reject(f"must be at least {_format_bound(node.low)}", "range")
    if node.high is not None and number > node.high:
        _reject(f"must be at most {_format_bound(node.high)}", "range")
    return number


def _format_bound(bound: float) -> str:
    return str(int(bound)) if float(bound).is_integer() and abs(bound) < 2**53 else str(bound)


def _check_choice(node: Node, value: object) -> str:
    key = value if isinstance(value, str) else str(_check_integer(value))
    if key not in node.choices:
        _reject(f"must be one of {', '.join(list(node.choices)[:50])}", "choice")
    return key


def _check_text(node: Node, value: object) -> str:
    if not isinstance(value, str):
        _reject("must be a text")
    _check_size(node, len(value), "characters")
    if node.encoding in _SEARCH_BY_ENCODING and not _SEARCH_BY_ENCODING[node.encoding](value):
        _reject(f"must be {node.encoding}", "encoding")
    if _SURROGATE.search(value):
        _reject("must not contain half a surrogate pair", "other")
    return value


def _check_size(node: Node, size: int, unit: str) -> None:
    if size < node.min_size:
        _reject(f"must have at least {node.min_size} {unit}", "size")
    if node.max_size is not None and size > node.max_size:
        _reject(f"must have at most {node.max_size} {unit}", "size")


def writable_view(node: Node, *, whole: bool = False) -> Node:
    """Return `node` without its read-only members: the shape of a write.

    A write-only member of a STRUCT is never required, because its stored value is not available. In
    an element of an ARRAY, which is always written `whole`, it may be required.
    """
    members = {
        key: writable_view(item, whole=whole) for key, item in node.members.items() if item.writable
    }
    element = writable_view(node.element, whole=True) if node.element else None
    required = node.required and (node.readable or whole)
    return msgspec.structs.replace(
        node, members=members, element=element, required=required, readable=True
    )


def settable_view(node: Node) -> Node:
    """Return `node` with readable and optional members, for things that are not devices.

    Elements of an ARRAY keep their required members, because an element is written as a whole.
    """
    members = {key: settable_view(item) for key, item in node.members.items()}
    element = _make_readable(node.element) if node.element else None
    return msgspec.structs.replace(
        node, members=members, element=element, required=False, readable=True
    )


def _make_readable(node: Node) -> Node:
    members = {key: _make_readable(item) for key, item in node.members.items()}
    element = _make_readable(node.element) if node.element else None
    return msgspec.structs.replace(node, members=members, element=element, readable=True)


def keep_given(sent: object, checked: object) -> Any:
    """Return the checked values without members that `sent` lacks."""
    if not isinstance(sent, dict) or not isinstance(checked, dict):
        return checked
    return {key: keep_given(item, checked[key]) for key, item in sent.items() if key in checked}


def partial_view(node: Node) -> Node:
    """Return `node` for a report: members of a STRUCT are optional, except inside an ARRAY.

    Missing members keep their latest value. An ARRAY is replaced completely.
    """
    members = {key: partial_view(item) for key, item in node.members.items()}
    return msgspec.structs.replace(node, members=members, required=False)


def remove_read_only(node: Node, sent: object, path: str, faults: list[Fault]) -> Any:
    """Return the values without read-only members; add a fault for each such member."""
    if node.kind == "ARRAY" and node.element and isinstance(sent, list):
        element = node.element
        return [
            remove_read_only(element, item, f"{path}[{at}]", faults) for at, item in enumerate(sent)
        ]
    if node.kind != "STRUCT" or not isinstance(sent, dict):
        return sent
    writable: dict[str, Any] = {}
    for key, item in sent.items():
        member = node.members.get(key)
        if member is None:
            writable[key] = item
        elif not member.writable:
            faults.append(Fault(f"{path}.{key}", "is read-only"))
        else:
            writable[key] = remove_read_only(member, item, f"{path}.{key}", faults)
    return writable


def merge_value(node: Node, current: object, sent: object) -> Any:
    """Merge `sent` into `current`, STRUCTs member by member.

    Only valid members of `current` that `node` knows are used, so that values stored under an older
    TSL do not make a write fail. Invalid values in `sent` remain, and are rejected later.
    """
    if node.kind != "STRUCT" or not isinstance(sent, dict):
        return sent
    current_members: Mapping[str, object] = current if isinstance(current, dict) else {}
    whole = dict(sent)
    for key, member in node.members.items():
        if key in sent:
            whole[key] = merge_value(member, current_members.get(key), sent[key])
        elif key in current_members:
            whole.update(keep_valid_parts(key, member, current_members[key]))
    return whole


def keep_valid_parts(key: str, node: Node, value: object) -> dict[str, Any]:
    """Return `{key: value}` with the parts that `node` accepts, else an empty dict."""
    faults: list[Fault] = []
    valid_parts = (
        merge_value(node, value, {}) if node.kind == "STRUCT" else _drop_unknown(node, value)
    )
    checked = check_value(node, valid_parts, key, faults)
    return {} if faults or checked == {} else {key: checked}


def _drop_unknown(node: Node, value: object) -> Any:
    """Return `value` without members that `node` lacks.

    Other invalid values remain, because an ARRAY is valid only as a whole.
    """
    if node.kind == "ARRAY" and node.element and isinstance(value, list):
        return [_drop_unknown(node.element, item) for item in value]
    if node.kind == "STRUCT" and isinstance(value, dict):
        members = node.members
        return {
            key: _drop_unknown(members[key], item) for key, item in value.items() if key in members
        }
    return value
