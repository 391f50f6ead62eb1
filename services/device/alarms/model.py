"""Rules, states and alarms in MongoDB, and their errors.

Stored names are those of the structs in camelCase, `id` is `_id`; times are ms.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from libs.common.contracts.flows import Severity
from libs.common.errors import NotFound
from libs.common.store.mongo import Document

ALARMS_TOPIC = "alarms"
"""Topic of `Wakeups`: rules have changed, or a state has become due or has a new due time."""

Comparison = Literal["GT", "GTE", "LT", "LTE", "EQ", "NE"]
MAX_DURATION_SECONDS = 30 * 86_400
"""Maximum seconds of a duration or a silence."""
MAX_PROPERTY_PATH_LENGTH = 512
"""Maximum characters of the path of a property."""
StructT = TypeVar("StructT", bound=msgspec.Struct)

PropertyPath = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=MAX_PROPERTY_PATH_LENGTH,
        pattern=r"^[A-Za-z0-9_@#/\-]+(\.[A-Za-z0-9_@#/\-]+)*$",
        description="An id of the TSL; members of a STRUCT follow a dot",
    ),
]
NumberThreshold = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
TextThreshold = Annotated[str, msgspec.Meta(max_length=512)]


class ValueCondition(msgspec.Struct, tag_field="type", tag="VALUE", omit_defaults=True):
    """A property is beyond a threshold, optionally for a minimum time.

    The alarm clears when the value has returned by `hysteresis`, which requires `GT`, `GTE`, `LT`
    or `LTE`.
    """

    property: PropertyPath
    """Path of the property, for example `temperature` or `location.latitude`."""
    comparison: Comparison
    """`GT` (greater than), `GTE`, `LT` (less than), `LTE`, `EQ` (equal) or `NE`."""
    threshold: NumberThreshold | bool | TextThreshold
    """Value that the property is compared with."""
    hysteresis: Annotated[float, msgspec.Meta(ge=0, le=1e300)] = 0.0
    """Distance from the threshold that the value must return by, in the unit of the property."""
    seconds: Annotated[int, msgspec.Meta(ge=0, le=MAX_DURATION_SECONDS)] = 0
    """How long the value must be beyond the threshold."""


class SilenceCondition(msgspec.Struct, tag_field="type", tag="SILENCE"):
    """No report arrives for this time; the next report clears the alarm."""

    seconds: Annotated[int, msgspec.Meta(ge=10, le=MAX_DURATION_SECONDS)]
    """Seconds without a report."""


class EventCondition(msgspec.Struct, tag_field="type", tag="EVENT", omit_defaults=True):
    """A device sends an event; another event or a user clears the alarm."""

    event: PropertyPath
    ended_by: PropertyPath | None = None


RuleCondition = ValueCondition | SilenceCondition | EventCondition


class Rule(msgspec.Struct, rename="camel", kw_only=True):
    """Condition that raises alarms, for one device or all devices of a product."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    severity: Severity
    device: int | None = None
    product: str | None = None
    condition: RuleCondition
    enabled: bool = True
    generation: int = 1
    """Incremented when condition, device, product or `enabled` changes.

    Alarms of older generations end.
    """
    has_pending_states: bool = msgspec.field(name="todo", default=False)
    """Whether a change of the rule requires ending its states or watching devices for silence."""
    is_deleting: bool = msgspec.field(name="ending", default=False)
    """Whether the rule is being deleted and hidden from users."""
    created_at: int
    updated_at: int
    changed: int
    """Time of the last write (ms), by which processes find changed rules."""

    @property
    def is_active(self) -> bool:
        """Return whether the rule is evaluated."""
        return self.enabled and not self.is_deleting

    def applies_to(self, tenant: str, device: int, product: str) -> bool:
        """Return whether the rule is active and applies to this device."""
        is_target = self.device == device if self.device is not None else self.product == product
        return self.is_active and is_target and self.tenant == tenant


StateStatus = Literal["NORMAL", "PENDING", "RAISED"]


class Checkpoint(msgspec.Struct, rename="camel", omit_defaults=True):
    """Result of the fold over all readings before a time."""

    until: int
    """Time before which all readings are included, ms."""
    status: StateStatus = "NORMAL"
    since: int = 0
    arrival: int = 0
    value: Any = None
    at: int = 0
    """Time of the reading that last changed the status, ms."""
    sequence: int = 0


class State(msgspec.Struct, rename="camel", kw_only=True):
    """State of a rule for a device."""

    id: str = msgspec.field(name="_id")
    tenant: str
    rule: int
    generation: int
    device: int
    momentary: bool = False
    """Whether events raise the alarm: after a user clears it, the next event raises again."""
    status: StateStatus = "NORMAL"
    alarm: int | None = None
    """Id of the open alarm. If it is None in a RAISED state, a user has cleared the alarm."""
    at: int = 0
    """Newest time at which the status changed, ms; it never decreases."""
    sequence: int = 0
    """Sequence in `UPLINK` of the reading that changed the status; orders reports of one ms."""
    since: int = 0
    """Time since which a PENDING value is beyond its threshold, or a silence is watched, ms."""
    arrival: int = 0
    """When the first value beyond the threshold arrived, ms."""
    value: Any = None
    """First value beyond the threshold."""
    newest: int = 0
    """Time of the newest evaluated reading, ms."""
    checkpoint: Checkpoint | None = None
    """Checkpoint from which late readings are folded in. If None, only newer readings count."""
    points: list[Checkpoint] = []
    """Later checkpoints in order, so that an evaluation reads little history."""
    cleared: int = 0
    """Time at which a user last cleared the alarm, ms. Earlier arrivals raise no other alarm."""
    begun: int = 0
    """Readings that arrived before this time (ms) do not count."""
    due: int | None = None
    """When the state must be evaluated even without a reading, ms; None if never."""
    settles: int | None = None
    """When the state must be evaluated from `checkpoint` because its status changed, ms."""
    revision: int = 0
    """Incremented by each write, so that concurrent writes are noticed."""
    changed: int = 0
    """Time of the last change (ms), by which processes find changed states."""


class Alarm(msgspec.Struct, rename="camel", kw_only=True):
    """An alarm, open or cleared."""

    id: int = msgspec.field(name="_id")
    tenant: str
    rule: int | None = None
    """None for an alarm of a flow."""
    state: str | None = None
    """Key of the state of the rule for the device; None for an alarm of a flow."""
    flow: int | None = None
    key: str | None = None
    """Key that the flow chose; a device has one open alarm per key."""
    device: int
    device_name: str
    integration: str
    severity: Severity
    content: str
    """Name that the rule had when the alarm was raised, or text of the flow."""
    value: Any = None
    """Value that raised the alarm; None for a silence or a flow."""
    raised_at: int
    open: bool = True
    cleared_at: int | None = None
    ended_at: datetime | None = None
    """When the end of the alarm was stored; retention counts from then."""
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of the user."""
    claimed_at: int | None = None
    claimed_by: str | None = None
    """Id of the user."""
    claimed_name: str | None = None
    note: str | None = None


def new_state(rule: Rule, device: int) -> State:
    """Return the initial state of a rule for a device."""
    return State(
        id=state_key(rule.id, rule.generation, device),
        tenant=rule.tenant,
        rule=rule.id,
        generation=rule.generation,
        device=device,
        momentary=isinstance(rule.condition, EventCondition),
        begun=rule.updated_at,
    )


def state_key(rule: int, generation: int, device: int) -> str:
    """Return the stored key of a state."""
    return f"{rule}.{generation}.{device}"


def from_document(document: Mapping[str, Any], form: type[StructT]) -> StructT:
    """Return the struct of type `form` that a document holds."""
    return msgspec.convert(document, form)


def to_document(struct: msgspec.Struct) -> Document:
    """Return the document of a struct, without the fields that are None."""
    fields: Document = msgspec.to_builtins(struct, builtin_types=(datetime,))
    return {name: value for name, value in fields.items() if value is not None}


def rule_not_found(rule_id: int) -> NotFound:
    """Return the error for a rule that does not exist or is hidden from the user."""
    return NotFound(f"alarm rule {rule_id} does not exist", field="rule_id")
