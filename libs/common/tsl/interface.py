"""What every TSL can be asked, whether a document declares it or it is open."""

from typing import Any, Protocol

import msgspec

from libs.common.tsl.document import EventSpec, PropertySpec, ServiceSpec, TslDocument
from libs.common.tsl.faults import Fault

Values = dict[str, Any]
"""Values by top-level key: STRUCTs are objects, ARRAYs arrays."""


class Report(msgspec.Struct, frozen=True):
    """The good properties of a report (none, if all are bad), and a fault per bad one.

    `ts` is the device's own time in epoch milliseconds, None when it sent none.
    """

    ts: int | None
    properties: Values
    faults: list[Fault]


class Event(msgspec.Struct, frozen=True):
    """An event of a device; `ts` as in a report, `outputs` keyed by short member name."""

    ts: int | None
    event_id: str
    outputs: Values


class Tsl(Protocol):
    """Checks what a thing sends and what is sent to it."""

    conceals: bool
    """Whether a property, or a member of one, is write-only (access mode W).

    Such values are sent to the thing and can be read nowhere: `check_report` refuses them,
    `readable` removes them from values that were stored under another TSL.
    """

    @property
    def document(self) -> TslDocument:
        """The document behind it, normalised; treat it as read-only."""

    def property(self, property_id: str) -> PropertySpec | None:
        """Look up a declared property or member by its dotted key; its spec has this as its id."""

    def event(self, event_id: str) -> EventSpec | None:
        """Look up a declared event."""

    def service(self, service_id: str) -> ServiceSpec | None:
        """Look up a declared service."""

    def decode_report(self, raw: bytes) -> Report:
        """Decode `{"ts"?: ms, "properties": {...}}`; other fields beside them are ignored.

        Good properties are kept, each bad or unknown one is a fault; null is a fault too,
        since silence would hide a broken sensor. A STRUCT may come in part, whatever is
        `required` of it; one in an ARRAY is whole. Numbers are rounded to
        `fractionDigits`. Raises `MalformedReport` when the JSON, the outer shape or `ts` is
        wrong or `properties` is empty.
        """

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check reported properties that are decoded already: the good ones and the faults."""

    def check_settings(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check properties that are set of a thing that is no device, write-only ones too."""

    def readable(self, values: Values) -> Values:
        """Return `values` without those of write-only members, at every level.

        A member may also be named by its id or a dotted path, as in a profile.
        """

    def write_only_paths(self) -> list[str]:
        """Return where values have write-only members, as paths of MongoDB: `users.code`."""

    def masked(self, values: Values) -> Values:
        """Return `values` of a message with `MASK` for write-only members.

        The same below a name of such a member anywhere else, since a thing may nest it wrongly.
        """

    def check_decoded(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Check values that a codec gave as JSON: the good ones and the faults.

        Beside what a report may hold: 0 and 1 for a BOOL, and text that is a number, without
        blanks or a unit, for a number. Good members of a STRUCT are kept when others are bad.
        """

    def decode_event(self, raw: bytes) -> Event:
        """Decode `{"ts"?: ms, "eventId": id, "outputs"?: {...}}`.

        Raises `MalformedReport` for a wrong shape or an unknown event, `InvalidValues` for
        bad outputs (paths `outputs.<key>`).
        """

    def check_write(self, properties: Values, current: Values) -> Values:
        """Give what to send to the device for an incremental update of `properties`.

        A partial STRUCT is completed from `current`, the values now in force, as far as
        they are still valid and writable; an ARRAY is replaced. Raises `InvalidValues`
        with every fault (paths `properties.<key>.<member>`, and `properties` when it is
        empty or no object).
        """

    def writable(self, values: Values) -> Values:
        """Give what of `values`, which the thing has, a write would take as it is.

        Without what is read-only, at every level, and what another TSL once allowed.
        """

    def check_service_inputs(self, service_id: str, inputs: Values | None) -> Values:
        """Check inputs keyed by short member name; None counts as none given.

        Raises `UnknownService`, or `InvalidValues` with paths `inputs.<key>`, and `inputs`
        when it is no object.
        """

    def check_service_outputs(self, service_id: str, outputs: Values | None) -> Values:
        """Check what a service answered; raises as `check_service_inputs` does."""
