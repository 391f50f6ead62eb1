"""Faults of TSL documents and of values."""

import types
from typing import Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import msgspec

from libs.common.tsl.limits import MAX_KEY_LENGTH, explain_unstorable

Code = Literal["null", "type", "choice", "range", "size", "encoding", "write_only", "other"]
"""The type of a fault; `null` includes missing values."""


class Fault(msgspec.Struct, frozen=True, eq=False):
    """An invalid value and the reason.

    `path` locates it in the JSON: `properties[3].dataSpec.validator.min` in a document,
    `properties.reporting_interval.time` in a report; empty for the whole. `reason` is the message
    of the open API. Other interfaces format a message from `code` and `args`, in which `value` is
    the checked value.
    """

    path: str
    reason: str
    code: Code = "other"
    args: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        """Return whether two faults have the same message."""
        return isinstance(other, Fault) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class Rejection(ValueError):
    """Invalid input; `faults` has every reason."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class TslInvalid(Rejection):
    """A TSL document is invalid."""


class InvalidValues(Rejection):
    """Values violate the TSL: of a write, or inputs or outputs of a service or event."""


def require_object(values: object, path: str) -> None:
    """Raise `InvalidValues` unless `values` is an object, because clients may send any JSON."""
    if not isinstance(values, dict):
        raise InvalidValues([Fault(path, "must be an object", "type", {"value": values})])


class MalformedReport(Rejection):
    """A message of a device has a wrong structure, and is rejected completely."""

    def __init__(self, reason: str, path: str = "") -> None:
        fault = Fault(path, reason)
        super().__init__([fault])
        self.reason = str(fault)


class UnknownService(Rejection):
    """The TSL does not declare the service."""

    def __init__(self, service_id: str) -> None:
        super().__init__(
            [Fault("serviceId", f"'{service_id[:MAX_KEY_LENGTH]}' is not a service of this thing")]
        )
        self.service_id = service_id


_T = TypeVar("_T", bound=msgspec.Struct)


class Faults:
    """Faults by path: the first reason of a path hides later ones of the path and its parts."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, path: str, reason: str) -> None:
        """Add a fault, unless the path or a parent has one."""
        if not self.covers(path):
            self._reasons[path] = reason

    def covers(self, path: str) -> bool:
        """Return whether `path` or one of its parents has a fault."""
        if not self._reasons:
            return False
        holders = (path[:end] for end, char in enumerate(path) if char in ".[")
        return path in self._reasons or any(holder in self._reasons for holder in holders)

    def listed(self) -> list[Fault]:
        """Return the faults in the order in which they were found."""
        return [Fault(path, reason) for path, reason in self._reasons.items()]


class RepeatedKeysObject(dict[str, Any]):
    """A JSON object with duplicate keys, which `repeated` lists."""

    repeated: tuple[str, ...] = ()


def object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object that records duplicate keys (an `object_pairs_hook`)."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    keys = [key for key, _ in pairs]
    repeating = RepeatedKeysObject(plain)
    repeating.repeated = tuple(key for key in plain if keys.count(key) > 1)
    return repeating


def read_struct(kind: type[_T], raw: object, path: str, faults: Faults) -> _T:
    """Decode the struct `kind`; null counts as absent, unknown fields are ignored.

    Invalid fields are added to `faults` and keep their default.
    """
    fields: dict[str, Any] = {}
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
            fields[field.name] = _read(field.type, value, place, faults)
    return kind(**{name: value for name, value in fields.items() if value is not None})


def _read(kind: Any, raw: object, path: str, faults: Faults) -> Any:
    if get_origin(kind) in {Union, types.UnionType}:
        types_wanted = [part for part in get_args(kind) if part is not types.NoneType]
        kind = types_wanted[0] if len(types_wanted) == 1 else kind
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
    reason = explain_unstorable(raw)
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
    """Return a default that a vendor wrote as a JSON scalar as text, the documented form."""
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value
