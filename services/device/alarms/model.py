"""Rules, states and alarms, as they are stored, and their errors.

Stored names are those of the structs in camelCase, `id` is `_id`; times are ms.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from libs.common.contracts.flows import Severity
from libs.common.errors import InvalidInput, NotFound
from libs.common.store.mongo import Document

Comparison = Literal["GT", "GTE", "LT", "LTE", "EQ", "NE"]
MOST_SECONDS = 30 * 86_400
"""Of a duration or a silence."""
LONGEST_PATH = 512
"""Characters of the path of a property."""
S = TypeVar("S", bound=msgspec.Struct)

Path = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=LONGEST_PATH,
        pattern=r"^[A-Za-z0-9_@#/\-]+(\.[A-Za-z0-9_@#/\-]+)*$",
        description="An id of the TSL; members of a STRUCT follow a dot",
    ),
]
Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Text = Annotated[str, msgspec.Meta(max_length=512)]


class ValueCondition(msgspec.Struct, tag_field="type", tag="VALUE", omit_defaults=True):
    """A property is beyond a threshold, perhaps for some time.

    It is over when the value is back by more than `hysteresis`, which numbers have.
    """

    property: Path
    comparison: Comparison
    threshold: Number | bool | Text
    hysteresis: Annotated[float, msgspec.Meta(ge=0, le=1e300)] = 0.0
    seconds: Annotated[int, msgspec.Meta(ge=0, le=MOST_SECONDS)] = 0
    """For how long it has to be beyond it."""


class SilenceCondition(msgspec.Struct, tag_field="type", tag="SILENCE"):
    """No report arrives for so many seconds; over with the next one."""

    seconds: Annotated[int, msgspec.Meta(ge=10, le=MOST_SECONDS)]


class EventCondition(msgspec.Struct, tag_field="type", tag="EVENT", omit_defaults=True):
    """An event of the TSL; another one ends it, or people do."""

    event: Path
    ended_by: Path | None = None


Condition = ValueCondition | SilenceCondition | EventCondition


class Rule(msgspec.Struct, rename="camel", kw_only=True):
    """What raises an alarm: of one device, or of each of a product."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    severity: Severity
    device: int | None = None
    product: str | None = None
    condition: Condition
    enabled: bool = True
    generation: int = 1
    """Grows when it decides otherwise; what older ones have raised is over."""
    todo: bool = False
    """States of older generations are to be ended, or those of a silence to be begun."""
    ending: bool = False
    """It is being deleted: nobody sees it any more."""
    created_at: int
    updated_at: int
    changed: int
    """ms: when it was written, by which processes hear of it."""

    @property
    def alive(self) -> bool:
        """Whether it decides anything."""
        return self.enabled and not self.ending

    def applies(self, tenant: str, device: int, product: str) -> bool:
        """Whether it is about a device."""
        mine = self.device == device if self.device is not None else self.product == product
        return self.alive and mine and self.tenant == tenant


Status = Literal["NORMAL", "PENDING", "RAISED"]


class Checkpoint(msgspec.Struct, rename="camel", omit_defaults=True):
    """What all readings before a time amount to; later ones can be folded in again."""

    until: int
    """ms: that time."""
    status: Status = "NORMAL"
    since: int = 0
    arrival: int = 0
    value: Any = None
    at: int = 0
    """ms: when the reading was measured that changed the status last."""
    sequence: int = 0


class State(msgspec.Struct, rename="camel", kw_only=True):
    """Where a rule stands for a device."""

    id: str = msgspec.field(name="_id")
    tenant: str
    rule: int
    generation: int
    device: int
    momentary: bool = False
    """What raises it are events: the next one does so again when people have cleared it."""
    status: Status = "NORMAL"
    alarm: int | None = None
    """The alarm that is open; RAISED without one is an alarm that people have cleared."""
    at: int = 0
    """ms: the newest time at which the status ever changed; never less than it was."""
    sequence: int = 0
    """Of it in `UPLINK`, which tells reports of one ms apart."""
    since: int = 0
    """Since when a PENDING value is beyond its threshold; since when a silence is watched."""
    arrival: int = 0
    """ms: when the first value of those beyond it arrived."""
    value: Any = None
    """What was beyond the threshold first."""
    newest: int = 0
    """ms: the time of the newest reading that was evaluated."""
    checkpoint: Checkpoint | None = None
    """From where readings that arrive out of order are folded in; None: only newer ones are."""
    points: list[Checkpoint] = []
    """Later checkpoints in their order, so that an evaluation reads little again."""
    cleared: int = 0
    """ms: when people cleared an alarm last. What had arrived by then raises no other one."""
    begun: int = 0
    """ms: since when readings count; what arrived before does not."""
    due: int | None = None
    """When it has to be looked at, though nothing happens."""
    settles: int | None = None
    """ms: when it has to be evaluated from `checkpoint` on, because its status has changed."""
    revision: int = 0
    """Grows with every change."""
    changed: int = 0
    """ms: when that was, by which processes hear of it."""


class Alarm(msgspec.Struct, rename="camel", kw_only=True):
    """One alarm, from its raising on."""

    id: int = msgspec.field(name="_id")
    tenant: str
    rule: int | None = None
    """None: a flow has raised it."""
    state: str | None = None
    """Key of the state that it belongs to."""
    flow: int | None = None
    key: str | None = None
    """What flows call it; a device has one open alarm of a key."""
    device: int
    device_name: str
    integration: str
    severity: Severity
    content: str
    """The name of the rule when it was raised, or what the flow says."""
    value: Any = None
    """What raised it; None for a silence."""
    raised_at: int
    open: bool = True
    cleared_at: int | None = None
    ended_at: datetime | None = None
    """When that was noted: it is kept for some days more."""
    cleared_by: str | None = None
    """`RULE`, `FLOW`, or the id of the user."""
    claimed_at: int | None = None
    claimed_by: str | None = None
    """Id of the user."""
    claimed_name: str | None = None
    note: str | None = None


def fresh_state(rule: Rule, device: int) -> State:
    """The state of a rule for a device that it has not judged yet."""
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
    """The natural key of a state."""
    return f"{rule}.{generation}.{device}"


def read(document: Mapping[str, Any], form: type[S]) -> S:
    """The struct that a document is."""
    return msgspec.convert(document, form)


def written(struct: msgspec.Struct) -> Document:
    """The document of a struct, without what is None."""
    fields: Document = msgspec.to_builtins(struct, builtin_types=(datetime,))
    return {name: value for name, value in fields.items() if value is not None}


def rule_not_found(rule_id: int) -> NotFound:
    """There is no such rule, or none that the user sees."""
    return NotFound(f"there is no alarm rule {rule_id}", field="rule_id")


def too_many_rules(limit: str, most: int) -> InvalidInput:
    """A device or a product has as many rules as `limit` permits."""
    text = f"{limit}: the device or the product has {most} alarm rules, which is its limit"
    return InvalidInput(text, field="device_id", code="alarm_rule_number_limitation")


def too_many_alarms(most: int) -> InvalidInput:
    """A device has as many open alarms of flows as it may."""
    text = f"a device has at most {most} open alarms of flows"
    return InvalidInput(text, field="key", code="alarm_number_limitation")
