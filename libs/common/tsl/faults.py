"""What can be wrong with a TSL document or with the values of a thing."""

from typing import Any, Literal

import msgspec

from libs.common.tsl.limits import MAX_KEY

Code = Literal["null", "type", "choice", "range", "size", "encoding", "write_only", "other"]
"""What a value is at fault in; `null` also where it is missing."""


class Fault(msgspec.Struct, frozen=True, eq=False):
    """One thing that is wrong, and where.

    `path` reads like the JSON: `properties[3].dataSpec.validator.min` in a document,
    `properties.reporting_interval.time` in a report; empty when it is the whole. `reason` is
    what the open API says; who says it in other words makes them of `code` and
    `args`, of which `value` is what was checked.
    """

    path: str
    reason: str
    code: Code = "other"
    args: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        """Two faults are the same when they say the same."""
        return isinstance(other, Fault) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class Refusal(ValueError):
    """Input that this library refuses; `faults` holds every reason."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class TslInvalid(Refusal):
    """A TSL document that cannot be imported."""


class InvalidValues(Refusal):
    """Values that break the TSL: a write, inputs or outputs of a service or an event."""


def refuse_non_object(values: object, path: str) -> None:
    """Raise `InvalidValues` unless `values` is an object: clients send anything as one."""
    if not isinstance(values, dict):
        raise InvalidValues([Fault(path, "must be an object", "type", {"value": values})])


class MalformedReport(Refusal):
    """A message of a device that is not of the wire's shape, so nothing in it can be kept."""

    def __init__(self, reason: str, path: str = "") -> None:
        fault = Fault(path, reason)
        super().__init__([fault])
        self.reason = str(fault)


class UnknownService(Refusal):
    """A service that the TSL does not declare."""

    def __init__(self, service_id: str) -> None:
        super().__init__(
            [Fault("serviceId", f"'{service_id[:MAX_KEY]}' is not a service of this thing")]
        )
        self.service_id = service_id
