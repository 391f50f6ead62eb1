"""The open TSL of the built-in product `generic`: things may send what they like."""

from libs.common.tsl._open import check_open
from libs.common.tsl._wire import checked_report, read_event
from libs.common.tsl.document import EventSpec, PropertySpec, ServiceSpec, TslDocument
from libs.common.tsl.faults import (
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    refuse_non_object,
)
from libs.common.tsl.interface import Event, Report, Tsl, Values
from libs.common.tsl.limits import open_key_fault


class GenericTsl:
    """Takes every value that can be stored, typed as it comes; see `Tsl` for each call."""

    def __init__(self) -> None:
        self.document = TslDocument(version="v1.0")
        self.conceals = False

    def property(self, property_id: str) -> PropertySpec | None:
        """Give None: no property is declared."""
        return None

    def event(self, event_id: str) -> EventSpec | None:
        """Give None: no event is declared."""
        return None

    def service(self, service_id: str) -> ServiceSpec | None:
        """Give None: no service is declared."""
        return None

    def decode_report(self, raw: bytes) -> Report:
        """Decode and check a report."""
        return checked_report(raw, self.check_report)

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check decoded properties one by one: the good ones and the faults."""
        faults: list[Fault] = []
        good = check_open(properties, "properties", faults)
        return good, faults

    def check_settings(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check properties that are set as those that are reported."""
        return self.check_report(properties)

    def readable(self, values: Values) -> Values:
        """Give `values`: all can be read."""
        return values

    def write_only_paths(self) -> list[str]:
        """Give none: all can be read."""
        return []

    def masked(self, values: Values) -> Values:
        """Give `values`: all can be read."""
        return values

    def check_decoded(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check what a codec gave: no value is known to be a boolean."""
        return self.check_report(properties)

    def decode_event(self, raw: bytes) -> Event:
        """Decode and check an event; its id may be any key."""
        wire = read_event(raw)
        reason = open_key_fault(wire.event_id)
        if reason:
            raise MalformedReport(reason, "eventId")
        return Event(wire.ts, wire.event_id, _checked(wire.outputs, "outputs"))

    def check_write(self, properties: Values, current: Values) -> Values:
        """Check a write and complete its objects from `current`, at every level."""
        refuse_non_object(properties, "properties")
        if not properties:
            raise InvalidValues([Fault("properties", "must not be empty")])
        whole = {key: _merged(current.get(key), given) for key, given in properties.items()}
        return _checked(whole, "properties")

    def writable(self, values: Values) -> Values:
        """Give `values`: nothing is read-only."""
        return dict(values)

    def check_service_inputs(self, service_id: str, inputs: Values | None) -> Values:
        """Check the inputs of a service, whose id may be any key."""
        if open_key_fault(service_id):
            raise UnknownService(service_id)
        return _checked(inputs, "inputs")

    def check_service_outputs(self, service_id: str, outputs: Values | None) -> Values:
        """Check what a service answered."""
        if open_key_fault(service_id):
            raise UnknownService(service_id)
        return _checked(outputs, "outputs")


_GENERIC = GenericTsl()


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
