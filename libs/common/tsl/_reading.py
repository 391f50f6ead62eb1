"""Read plain values into document structs, collecting every fault instead of the first."""

import types
from typing import Any, TypeGuard, TypeVar, Union, get_args, get_origin

import msgspec

from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import unstorable

_T = TypeVar("_T", bound=msgspec.Struct)


class Faults:
    """Faults by path: the first reason of a path counts, and hides what is inside it."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, path: str, reason: str) -> None:
        """Note that `path` is at fault, unless it or what holds it is noted already."""
        if not self.covers(path):
            self._reasons[path] = reason

    def covers(self, path: str) -> bool:
        """Tell whether `path` or something that holds it is at fault."""
        if not self._reasons:
            return False
        holders = (path[:end] for end, char in enumerate(path) if char in ".[")
        return path in self._reasons or any(holder in self._reasons for holder in holders)

    def listed(self) -> list[Fault]:
        """Give the faults in the order in which they were found."""
        return [Fault(path, reason) for path, reason in self._reasons.items()]


class Repeating(dict[str, Any]):
    """A JSON object that had the same key more than once; `repeated` names them."""

    repeated: tuple[str, ...] = ()


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, remembering keys given twice (an `object_pairs_hook`)."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    keys = [key for key, _ in pairs]
    repeating = Repeating(plain)
    repeating.repeated = tuple(key for key in plain if keys.count(key) > 1)
    return repeating


def read_struct(kind: type[_T], raw: object, path: str, faults: Faults) -> _T:
    """Read `raw` as the struct `kind`; null counts as absent, unknown fields are ignored.

    Whatever cannot be read is noted in `faults` and left at its default.
    """
    given: dict[str, Any] = {}
    if not isinstance(raw, dict):
        faults.add(path, "must be an object")
        return kind()
    for field in msgspec.structs.fields(kind):
        value = raw.get(field.encode_name)
        if value is None:
            continue
        place = f"{path}.{field.encode_name}" if path else field.encode_name
        if field.encode_name in getattr(raw, "repeated", ()):
            faults.add(place, "is given twice")
        if field.name == "default_value":
            value = _as_text(value)
        if not faults.covers(place):
            given[field.name] = _read(field.type, value, place, faults)
    return kind(**{name: value for name, value in given.items() if value is not None})


def _read(kind: Any, raw: object, path: str, faults: Faults) -> Any:
    if get_origin(kind) in {Union, types.UnionType}:
        wanted = [part for part in get_args(kind) if part is not types.NoneType]
        kind = wanted[0] if len(wanted) == 1 else kind
    element = get_args(kind)[0] if get_origin(kind) is list else None
    if _is_struct(kind):
        return read_struct(kind, raw, path, faults)
    if not _is_struct(element):
        return _read_leaf(kind, raw, path, faults)
    if not isinstance(raw, list):
        return faults.add(path, "must be an array")
    return [read_struct(element, item, f"{path}[{at}]", faults) for at, item in enumerate(raw)]


def _is_struct(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _read_leaf(kind: Any, raw: object, path: str, faults: Faults) -> Any:
    reason = unstorable(raw)
    if reason:
        return faults.add(path, reason)
    for key in getattr(raw, "repeated", ()):
        faults.add(f"{path}.{key}", "is given twice")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        return faults.add(path, reason[0].lower() + reason[1:])


def _as_text(value: object) -> object:
    """Give a default that a vendor wrote as a JSON scalar in the documented form, text."""
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value
