"""Bounds of values without a type: what can be stored, and no more than is sound."""

from typing import Any

from libs.common.tsl._reading import unstorable
from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import MAX_DEPTH, MAX_KEY, MAX_MEMBERS, MAX_TEXT, key_fault


def check_open(values: dict[str, Any], path: str) -> tuple[dict[str, Any], list[Fault]]:
    """Give the values that can be stored under their keys, and a fault for each other one.

    The first 2,000 values count, nested ones included; those after them are at fault.
    """
    good: dict[str, Any] = {}
    faults: list[Fault] = []
    left = MAX_MEMBERS
    for key, value in values.items():
        size = _size(value, left)
        reason = key_fault(key) or _value_fault(value) if size <= left else "is one value too many"
        if reason:
            faults.append(Fault(f"{path}.{key[:MAX_KEY]}", reason))
        else:
            good[key] = value
            left -= size
    return good, faults


def _size(value: object, enough: int) -> int:
    """Count the values in `value`, itself included; stops once they exceed `enough`."""
    count = 0
    pending = [value]
    while pending and count <= enough:
        held = pending.pop()
        count += 1
        if isinstance(held, dict):
            pending += held.values()
        elif isinstance(held, list):
            pending += held
    return count


def _value_fault(value: object) -> str | None:
    if value is None:
        return "must not be null"
    return _nested_fault(value, 1) or unstorable(value)


def _nested_fault(value: object, depth: int) -> str | None:
    """Check kinds, depth and texts; run first, it keeps other walks from going too deep."""
    if depth > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"must be at most {MAX_TEXT} characters long"
    held: list[object] = []
    if isinstance(value, dict):
        held = [*value, *value.values()]
    elif isinstance(value, list):
        held = value
    elif not isinstance(value, str | int | float | bool | None):
        return "is not a JSON value"
    return next(filter(None, (_nested_fault(item, depth + 1) for item in held)), None)


def laid_over(current: object, given: object) -> Any:
    """Lay `given` over `current`, for objects member by member."""
    if not isinstance(current, dict) or not isinstance(given, dict):
        return given
    return current | {key: laid_over(current.get(key), item) for key, item in given.items()}
