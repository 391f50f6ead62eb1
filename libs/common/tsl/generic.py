"""The open TSL of the built-in product `generic`: things may send any values."""

from collections.abc import Mapping
from typing import Any

from libs.common.tsl._decoders import Event, Report, Values, decode_checked_report, read_event
from libs.common.tsl.document import EventSpec, PropertySpec, ServiceSpec, TslDocument
from libs.common.tsl.faults import (
    Code,
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    require_object,
)
from libs.common.tsl.limits import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_MEMBERS,
    MAX_TEXT_LENGTH,
    explain_unstorable_scalar,
    find_open_key_fault,
)

_SCALARS = (bool, int, float, str)
"""A tuple, because a check against a union takes several times as long."""


class _TooMany(Exception):
    """More values than one report may have; internal."""


def check_open_values(
    values: Mapping[str, object], path: str, faults: list[Fault]
) -> dict[str, Any]:
    """Return copies of the valid members of `values`, and add faults of the others.

    A member is rejected completely if it contains null, a key or scalar that cannot be stored, more
    than `MAX_DEPTH` levels, or more than `MAX_MEMBERS` values including the previous members.
    """
    good: dict[str, Any] = {}
    remaining = MAX_MEMBERS
    for key, item in values.items():
        place = _member_path(path, key)
        walk = _OpenValueCheck(remaining)
        try:
            checked = walk.member(key, item, place, 1)
        except _TooMany:
            faults.append(Fault(place, f"exceeds {MAX_MEMBERS} values in total"))
            continue
        faults += walk.faults
        if not walk.faults:
            good[key] = checked
            remaining = walk.left
    return good


def _member_path(path: str, key: object) -> str:
    return f"{path}.{str(key)[:MAX_KEY_LENGTH]}"


class _OpenValueCheck:
    """A traversal of a value: its faults, and the number of values that are still allowed."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.faults: list[Fault] = []

    def member(self, key: object, value: object, path: str, depth: int) -> Any:
        """Check a key and its value."""
        reason = find_open_key_fault(key) if isinstance(key, str) else "must have a text as its key"
        if reason:
            return self._reject(path, reason)
        return self._value(value, path, depth)

    def _value(self, value: object, path: str, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        if depth > MAX_DEPTH:
            return self._reject(path, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, dict):
            return {
                key: self.member(key, item, _member_path(path, key), depth + 1)
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
        elif isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
            reason = f"must have at most {MAX_TEXT_LENGTH} characters"
        else:
            reason = explain_unstorable_scalar(value)
        if reason is None:
            return value
        code: Code = "null" if value is None else "type"
        return self.faults.append(Fault(path, reason, code, {"value": value}))

    def _reject(self, path: str, reason: str) -> None:
        self.faults.append(Fault(path, reason))


class Tsl:
    """Checks the values that a thing sends and receives.

    This class is open: it accepts every value that can be stored, and any event or service id.
    `CompiledTsl` implements a document with declarations.
    """

    def __init__(self, document: TslDocument) -> None:
        self.document = document
        """The normalised document; treat it as read-only."""
        self.conceals = False
        """Whether a property, or a member of one, is write-only (access mode W).

        Such values are sent to the thing but never returned: `check_report` rejects them, and
        `readable` removes them from values that were stored under another TSL.
        """
        self._properties: dict[str, PropertySpec] = {}
        self._events: dict[str, EventSpec] = {}
        self._services: dict[str, ServiceSpec] = {}

    def property(self, property_id: str) -> PropertySpec | None:
        """Return a declared property or member by its dotted key, which is the id of the result."""
        return self._properties.get(property_id)

    def event(self, event_id: str) -> EventSpec | None:
        """Return a declared event; None if the document does not declare it."""
        return self._events.get(event_id)

    def service(self, service_id: str) -> ServiceSpec | None:
        """Return a declared service; None if the document does not declare it."""
        return self._services.get(service_id)

    def decode_report(self, raw: bytes) -> Report:
        """Decode `{"ts"?: ms, "properties": {...}}`; other fields are ignored.

        Valid properties are kept; each invalid or unknown one is a fault. Null is a fault, because
        ignoring it would hide a broken sensor. A STRUCT may be incomplete, regardless of
        `required`, except in an ARRAY. Numbers are rounded to `fractionDigits`. Raises
        `MalformedReport` if the JSON, its structure or `ts` is invalid, or `properties` is empty.
        """
        return decode_checked_report(raw, self.check_report)

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid ones of decoded properties, and the faults of the others."""
        faults: list[Fault] = []
        good = check_open_values(properties, "properties", faults)
        return good, faults

    def check_settings(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid properties set for a thing that is no device, and the faults.

        The properties may be write-only.
        """
        return self.check_report(properties)

    def readable(self, values: Values) -> Values:
        """Return `values` without write-only members, at every level.

        The name of a member may also be its id or a dotted path, as in a profile.
        """
        return values

    def write_only_paths(self) -> list[str]:
        """Return the write-only members as paths of MongoDB: `users.code`."""
        return []

    def masked(self, values: Values) -> Values:
        """Return `values` of a message with `MASK` for write-only members.

        Values below the name of such a member are also masked elsewhere, because a thing may nest
        them wrongly.
        """
        return values

    def check_decoded(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid ones of the values that a codec returned, and the faults of the others.

        In addition to reports, a BOOL may be 0 or 1, and a number may be text without blanks or a
        unit. Valid members of a STRUCT are kept if others are invalid.
        """
        return self.check_report(properties)

    def decode_event(self, raw: bytes) -> Event:
        """Decode `{"ts"?: ms, "eventId": id, "outputs"?: {...}}`.

        Raises `MalformedReport` for a wrong structure or an unknown event, and `InvalidValues` for
        invalid outputs (paths `outputs.<key>`).
        """
        wire = read_event(raw)
        reason = find_open_key_fault(wire.event_id)
        if reason:
            raise MalformedReport(reason, "eventId")
        return Event(wire.ts, wire.event_id, _validate(wire.outputs, "outputs"))

    def check_write(self, properties: Values, current: Values) -> Values:
        """Return the values to send to the device for an update of `properties`.

        A partial STRUCT is completed from `current`, the stored values, if they are still valid and
        writable; an ARRAY is replaced. Raises `InvalidValues` with every fault (paths
        `properties.<key>.<member>`, and `properties` if it is empty or not an object).
        """
        require_object(properties, "properties")
        if not properties:
            raise InvalidValues([Fault("properties", "must not be empty")])
        whole = {key: _merge(current.get(key), sent) for key, sent in properties.items()}
        return _validate(whole, "properties")

    def writable(self, values: Values) -> Values:
        """Return the parts of stored `values` that a write would accept.

        The result lacks read-only members at every level, and values that only another TSL allows.
        """
        return dict(values)

    def check_service_inputs(self, service_id: str, inputs: Values | None) -> Values:
        """Check inputs by short member name; None means no inputs.

        Raises `UnknownService`, or `InvalidValues` with paths `inputs.<key>`, and `inputs` if it is
        not an object.
        """
        return self._check_params(service_id, inputs, "inputs")

    def check_service_outputs(self, service_id: str, outputs: Values | None) -> Values:
        """Check the outputs of a service; raises the errors of `check_service_inputs`."""
        return self._check_params(service_id, outputs, "outputs")

    def _check_params(self, service_id: str, values: Values | None, path: str) -> Values:
        if find_open_key_fault(service_id):
            raise UnknownService(service_id)
        return _validate(values, path)


_GENERIC = Tsl(TslDocument(version="v1.0"))


def generic_tsl() -> Tsl:
    """Return the open TSL, which has no state and is shared."""
    return _GENERIC


def _validate(values: Values | None, path: str) -> Values:
    values = {} if values is None else values
    require_object(values, path)
    faults: list[Fault] = []
    checked = check_open_values(values, path, faults)
    if faults:
        raise InvalidValues(faults)
    return checked


def _merge(current: object, sent: object) -> object:
    """Merge `sent` into the valid parts of `current`, objects member by member."""
    if not isinstance(current, dict) or not isinstance(sent, dict):
        return sent
    others = {key: item for key, item in current.items() if key not in sent}
    laid = {key: _merge(current.get(key), item) for key, item in sent.items()}
    return check_open_values(others, "", []) | laid
