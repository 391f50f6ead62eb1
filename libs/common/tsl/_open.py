"""Check values that no document declares: whether they can be stored and sent as JSON."""

from collections.abc import Mapping
from typing import Any

from libs.common.tsl.faults import Code, Fault
from libs.common.tsl.limits import (
    MAX_DEPTH,
    MAX_KEY,
    MAX_MEMBERS,
    MAX_TEXT,
    open_key_fault,
    unstorable_scalar,
)

_SCALARS = (bool, int, float, str)
"""A tuple, since checking against a union takes several times as long."""


class _TooMany(Exception):
    """More values than one report may hold; never leaves this module."""


def check_open(values: Mapping[str, object], path: str, faults: list[Fault]) -> dict[str, Any]:
    """Give the good members of `values`, copied; each bad one adds its faults.

    A member is bad as a whole: it holds null, a key or a scalar that cannot be stored, more
    than `MAX_DEPTH` levels, or with those before it more than `MAX_MEMBERS` values.
    """
    good: dict[str, Any] = {}
    left = MAX_MEMBERS
    for key, item in values.items():
        place = _place(path, key)
        walk = _Walk(left)
        try:
            checked = walk.member(key, item, place, 1)
        except _TooMany:
            faults.append(Fault(place, f"exceeds {MAX_MEMBERS} values in all"))
            continue
        faults += walk.faults
        if not walk.faults:
            good[key] = checked
            left = walk.left
    return good


def _place(path: str, key: object) -> str:
    return f"{path}.{str(key)[:MAX_KEY]}"


class _Walk:
    """One walk through a value: its faults, and how many more values are allowed."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.faults: list[Fault] = []

    def member(self, key: object, value: object, path: str, depth: int) -> Any:
        """Check a key and what it holds."""
        reason = open_key_fault(key) if isinstance(key, str) else "must have a text as its key"
        if reason:
            return self._refuse(path, reason)
        return self._value(value, path, depth)

    def _value(self, value: object, path: str, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        if depth > MAX_DEPTH:
            return self._refuse(path, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            return {
                key: self.member(key, item, _place(path, key), depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        return self._scalar(value, path)

    def _scalar(self, value: object, path: str) -> Any:
        reason = None
        if value is None:
            reason = "must not be null"
        elif not isinstance(value, _SCALARS):
            reason = "must be a JSON value"
        elif isinstance(value, str) and len(value) > MAX_TEXT:
            reason = f"must have at most {MAX_TEXT} characters"
        else:
            reason = unstorable_scalar(value)
        if reason is None:
            return value
        code: Code = "null" if value is None else "type"
        return self.faults.append(Fault(path, reason, code, {"value": value}))

    def _refuse(self, path: str, reason: str) -> None:
        self.faults.append(Fault(path, reason))
