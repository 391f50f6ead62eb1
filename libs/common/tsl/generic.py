"""The open TSL of the built-in product `generic`: things may send what they like."""

from collections.abc import Mapping
from typing import Any

from libs.common.tsl._decoders import Event, Report, Values, checked_report, read_event
from libs.common.tsl.document import EventSpec, PropertySpec, ServiceSpec, TslDocument
from libs.common.tsl.faults import (
    Code,
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    refuse_non_object,
)
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


class Tsl:
    """Checks what a thing sends and what is sent to it.

    This one is open: it takes every value that can be stored, typed as it comes, and ids of events
    and services may be any key. `CompiledTsl` is that of a document which declares something.
    """

    def __init__(self, document: TslDocument) -> None:
        self.document = document
        """The document behind it, normalised; treat it as read-only."""
        self.conceals = False
        """Whether a property, or a member of one, is write-only (access mode W).

        Such values are sent to the thing and can be read nowhere: `check_report` refuses them,
        `readable` removes them from values that were stored under another TSL.
        """
        self._properties: dict[str, PropertySpec] = {}
        self._events: dict[str, EventSpec] = {}
        self._services: dict[str, ServiceSpec] = {}

    def property(self, property_id: str) -> PropertySpec | None:
        """Look up a declared property or member by its dotted key; its spec has this as its id."""
        return self._properties.get(property_id)

    def event(self, event_id: str) -> EventSpec | None:
        """Look up a declared event."""
        return self._events.get(event_id)

    def service(self, service_id: str) -> ServiceSpec | None:
        """Look up a declared service."""
        return self._services.get(service_id)

    def decode_report(self, raw: bytes) -> Report:
        """Decode `{"ts"?: ms, "properties": {...}}`; other fields beside them are ignored.

        Good properties are kept, each bad or unknown one is a fault; null is a fault too,
        since silence would hide a broken sensor. A STRUCT may come in part, whatever is
        `required` of it; one in an ARRAY is whole. Numbers are rounded to
        `fractionDigits`. Raises `MalformedReport` when the JSON, the outer shape or `ts` is
        wrong or `properties` is empty.
        """
        return checked_report(raw, self.check_report)

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check reported properties that are decoded already: the good ones and the faults."""
        faults: list[Fault] = []
        good = check_open(properties, "properties", faults)
        return good, faults

    def check_settings(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check properties that are set of a thing that is no device, write-only ones too."""
        return self.check_report(properties)

    def readable(self, values: Values) -> Values:
        """Return `values` without those of write-only members, at every level.

        A member may also be named by its id or a dotted path, as in a profile.
        """
        return values

    def write_only_paths(self) -> list[str]:
        """Return where values have write-only members, as paths of MongoDB: `users.code`."""
        return []

    def masked(self, values: Values) -> Values:
        """Return `values` of a message with `MASK` for write-only members.

        The same below a name of such a member anywhere else, since a thing may nest it wrongly.
        """
        return values

    def check_decoded(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check values that a codec gave as JSON: the good ones and the faults.

        Beside what a report may hold: 0 and 1 for a BOOL, and text that is a number, without
        blanks or a unit, for a number. Good members of a STRUCT are kept when others are bad.
        """
        return self.check_report(properties)

    def decode_event(self, raw: bytes) -> Event:
        """Decode `{"ts"?: ms, "eventId": id, "outputs"?: {...}}`.

        Raises `MalformedReport` for a wrong shape or an unknown event, `InvalidValues` for
        bad outputs (paths `outputs.<key>`).
        """
        wire = read_event(raw)
        reason = open_key_fault(wire.event_id)
        if reason:
            raise MalformedReport(reason, "eventId")
        return Event(wire.ts, wire.event_id, _checked(wire.outputs, "outputs"))

    def check_write(self, properties: Values, current: Values) -> Values:
        """Give what to send to the device for an incremental update of `properties`.

        A partial STRUCT is completed from `current`, the values now in force, as far as
        they are still valid and writable; an ARRAY is replaced. Raises `InvalidValues`
        with every fault (paths `properties.<key>.<member>`, and `properties` when it is
        empty or no object).
        """
        refuse_non_object(properties, "properties")
        if not properties:
            raise InvalidValues([Fault("properties", "must not be empty")])
        whole = {key: _merged(current.get(key), given) for key, given in properties.items()}
        return _checked(whole, "properties")

    def writable(self, values: Values) -> Values:
        """Give what of `values`, which the thing has, a write would take as it is.

        Without what is read-only, at every level, and what another TSL once allowed.
        """
        return dict(values)

    def check_service_inputs(self, service_id: str, inputs: Values | None) -> Values:
        """Check inputs keyed by short member name; None counts as none given.

        Raises `UnknownService`, or `InvalidValues` with paths `inputs.<key>`, and `inputs`
        when it is no object.
        """
        return self._check_params(service_id, inputs, "inputs")

    def check_service_outputs(self, service_id: str, outputs: Values | None) -> Values:
        """Check what a service answered; raises as `check_service_inputs` does."""
        return self._check_params(service_id, outputs, "outputs")

    def _check_params(self, service_id: str, values: Values | None, path: str) -> Values:
        if open_key_fault(service_id):
            raise UnknownService(service_id)
        return _checked(values, path)


_GENERIC = Tsl(TslDocument(version="v1.0"))


def generic_tsl() -> Tsl:
    """Give the open TSL; it holds no state, so there is one for all."""
    return _GENERIC


def _checked(values: Values | None, path: str) -> Values:
    values = {} if values is None else values
    refuse_non_object(values, path)
    faults: list[Fault] = []
    checked = check_open(values, path, faults)
    if faults:
        raise InvalidValues(faults)
    return checked


def _merged(current: object, given: object) -> object:
    """Lay `given` over `current`, objects member by member; what is bad in `current` goes."""
    if not isinstance(current, dict) or not isinstance(given, dict):
        return given
    others = {key: item for key, item in current.items() if key not in given}
    laid = {key: _merged(current.get(key), item) for key, item in given.items()}
    return check_open(others, "", []) | laid
