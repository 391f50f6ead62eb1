"""The open TSL of products without a document: whatever comes is kept as it is typed."""

from collections.abc import Container

from libs.common.tsl._open import check_open, laid_over
from libs.common.tsl._wire import read_event, read_report
from libs.common.tsl.document import EventSpec, PropertySpec, ServiceSpec, TslDocument
from libs.common.tsl.faults import Fault, InvalidValues, MalformedReport, UnknownService
from libs.common.tsl.interface import Event, Report, Tsl, Values
from libs.common.tsl.limits import key_fault


class _EveryKey(Container[str]):
    """Holds every well-formed key."""

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key_fault(key) is None


class GenericTsl:
    """Accepts any JSON value under any well-formed key; see `Tsl` for each call.

    Only what could not be stored is refused: top-level keys as in a document, null in the
    place of a whole property, numbers beyond 64 bits, nesting beyond 16 levels, texts
    beyond 65,536 characters, more than 2,000 values in one message.
    """

    writable_keys: Container[str] = _EveryKey()

    def __init__(self) -> None:
        self.document = TslDocument()

    def property(self, property_id: str) -> PropertySpec | None:  # noqa: ARG002
        """None: an open TSL declares nothing."""
        return None

    def event(self, event_id: str) -> EventSpec | None:  # noqa: ARG002
        """None: an open TSL declares nothing."""
        return None

    def service(self, service_id: str) -> ServiceSpec | None:  # noqa: ARG002
        """None: an open TSL declares nothing."""
        return None

    def decode_report(self, raw: bytes) -> Report:
        """Decode a report of any properties."""
        ts, values, unreadable = read_report(raw)
        good, faults = self.check_report(values)
        return Report(ts, good, unreadable + faults)

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Give the properties that can be stored, and a fault for each other one."""
        return check_open(properties, "properties")

    def decode_event(self, raw: bytes) -> Event:
        """Decode any event whose id is a well-formed key."""
        wire = read_event(raw)
        reason = key_fault(wire.event_id)
        if reason:
            raise MalformedReport(f"eventId {reason}")
        return Event(wire.ts, wire.event_id, _all_or_none(wire.outputs, "outputs"))

    def check_write(self, properties: Values, current: Values) -> Values:
        """Check any write; objects are laid over the objects now in force."""
        if not properties:
            raise InvalidValues([Fault("properties", "must not be empty")])
        given = _all_or_none(properties, "properties")
        whole = {key: laid_over(current.get(key), value) for key, value in given.items()}
        return _all_or_none(whole, "properties")

    def check_service_inputs(self, service_id: str, inputs: Values | None) -> Values:
        """Check the inputs of any service whose id is a well-formed key."""
        if key_fault(service_id):
            raise UnknownService(service_id)
        return _all_or_none(inputs, "inputs")

    def check_service_outputs(self, service_id: str, outputs: Values | None) -> Values:
        """Check the outputs of any service whose id is a well-formed key."""
        if key_fault(service_id):
            raise UnknownService(service_id)
        return _all_or_none(outputs, "outputs")


def _all_or_none(values: Values | None, path: str) -> Values:
    good, faults = check_open(values or {}, path)
    if faults:
        raise InvalidValues(faults)
    return good


_GENERIC = GenericTsl()


def generic_tsl() -> Tsl:
    """Give the open TSL; one for all, as it holds nothing."""
    return _GENERIC
