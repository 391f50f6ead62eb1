"""Start nodes: `trigger`, `simpleTimer`, `eventListener`, `simpleMqtt`."""

import re
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import (
    MAX_KEY_CHARACTERS,
    DeclaredType,
    EntityKey,
    ParameterFault,
    Parameters,
    VariableName,
    convert_input,
    find_duplicate_names,
    parameter_meta,
    require_map,
)

MAX_INPUTS = 100
_match_identifier = re.compile(r"[A-Za-z0-9_@#$-]{1,50}").fullmatch


class TriggerInput(msgspec.Struct, rename="camel"):
    """An input of the service."""

    identify: VariableName
    """Key of the input in calls and references."""
    name: VariableName
    """Name for users. Calls accept it as key too."""
    type: DeclaredType = "STRING"
    """Type of the value; `OTHER` is rejected. Numbers may be texts."""


class TriggerParameters(Parameters):
    """The inputs of the service."""

    entity_configs: Annotated[
        list[TriggerInput],
        parameter_meta(
            "Inputs",
            "Inputs of the service; nodes refer to them by identifier",
            ui="paramDefineInput",
            ui_group="Input Variables",
            max_length=MAX_INPUTS,
        ),
    ] = msgspec.field(default_factory=list)

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield invalid names and types of inputs."""
        yield from find_duplicate_names(
            "entityConfigs", (each.identify for each in self.entity_configs)
        )
        for place, config in enumerate(self.entity_configs):
            if not _match_identifier(config.identify):
                text = "must have only letters, digits and _ @ # $ -"
                yield ParameterFault(f"entityConfigs[{place}].identify", text)
            if config.type == "OTHER":
                text = "must be LONG, DOUBLE, BOOLEAN or STRING"
                yield ParameterFault(f"entityConfigs[{place}].type", text)


class Trigger(Entry[TriggerParameters]):
    """Starts a flow with the inputs of a service call."""

    name = "trigger"
    title = "Trigger"
    description = "Runs the flow when its service is called"

    def build_output(self, parameters: TriggerParameters, trigger_input: Any) -> dict[str, Any]:
        """Return inputs by identifier; names are accepted too, as editors use them."""
        trigger_input, inputs = require_map(trigger_input, " of inputs by identifier"), {}
        for config in parameters.entity_configs:
            for name in (config.identify, config.name):
                if name in trigger_input:
                    inputs[config.identify] = convert_input(
                        config.type, config.identify, trigger_input[name]
                    )
                    break
        return inputs


Weekday = Literal["MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"]
MAX_EPOCH_SECOND = 253_402_300_799
"""9999-12-31T23:59:59Z in seconds, the largest valid time."""
MAX_INTERVAL = 1_000_000
"""Maximum interval in its unit."""
MAX_TIMER_RULES = 100
UTC = "UTC"

EpochSecond = Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH_SECOND)]


class TimerRule(msgspec.Struct, rename="camel"):
    """A time of day."""

    hour: Annotated[int, msgspec.Meta(ge=0, le=23)]
    """Hour in the time zone of the timer."""
    minute: Annotated[int, msgspec.Meta(ge=0, le=59)]
    """Minute of the hour."""
    days_of_week: Annotated[
        Annotated[list[Weekday], msgspec.Meta(max_length=7)] | None,
        msgspec.Meta(description="Null or empty: every day"),
    ] = None


class TimerSettings(msgspec.Struct, rename="camel", kw_only=True):
    """The times when the flow runs."""

    type: Literal["ONCE", "INTERVAL", "SCHEDULE"]
    """`ONCE`: at one time. `INTERVAL`: repeatedly; the first interval starts when the flow is
    enabled or its timer changes. `SCHEDULE`: at times of days. Each type requires its fields."""
    timezone: Annotated[
        Annotated[str, msgspec.Meta(max_length=64)] | None,
        msgspec.Meta(description="IANA name of the time zone. Default: UTC"),
    ] = None
    execution_epoch_second: Annotated[
        EpochSecond | None,
        msgspec.Meta(description="ONCE: time of the run, seconds since 1970 (UTC)"),
    ] = None
    interval_time_unit: Annotated[
        Literal["MINUTES", "HOURS", "DAYS"] | None,
        msgspec.Meta(description="INTERVAL: the unit; a day has 24 hours"),
    ] = None
    interval_time: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_INTERVAL)] | None,
        msgspec.Meta(description="INTERVAL: number of units between two runs"),
    ] = None
    rules: Annotated[
        Annotated[list[TimerRule], msgspec.Meta(max_length=MAX_TIMER_RULES)] | None,
        msgspec.Meta(description="SCHEDULE: times of day"),
    ] = None
    expiration_epoch_second: Annotated[
        EpochSecond | None, msgspec.Meta(description="End of the timer, seconds since 1970 (UTC)")
    ] = None


class SimpleTimerParameters(Parameters):
    """The times when the flow runs."""

    timer_settings: Annotated[
        TimerSettings,
        parameter_meta(
            "Execution", "When the flow runs", ui="timerSettings", ui_group="Timer Settings"
        ),
    ]

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield an unknown time zone and missing settings of the timer's type."""
        settings = self.timer_settings
        if settings.timezone and not is_time_zone(settings.timezone):
            text = "must be an IANA time zone such as Europe/Berlin"
            yield ParameterFault("timerSettings.timezone", text)
        needed: Mapping[str, Mapping[str, Any]] = {
            "ONCE": {"executionEpochSecond": settings.execution_epoch_second},
            "INTERVAL": {
                "intervalTimeUnit": settings.interval_time_unit,
                "intervalTime": settings.interval_time,
            },
            "SCHEDULE": {"rules": settings.rules or None},
        }
        for field, value in needed[settings.type].items():
            if value is None:
                yield ParameterFault(
                    f"timerSettings.{field}", f"is required for type {settings.type}"
                )


def is_time_zone(name: str) -> bool:
    """Return whether a time zone exists."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError for names of folders
        return False
    return True


class SimpleTimer(Entry[SimpleTimerParameters]):
    """Starts a flow at due times with `executionEpochSecond` and `timezone`."""

    name = "simpleTimer"
    title = "Timer"
    description = "Runs the flow once, at intervals, or at times of certain days"

    def build_output(self, parameters: SimpleTimerParameters, trigger_input: Any) -> dict[str, Any]:
        """Return the due time of the run; by default now, for tests."""
        zone = parameters.timer_settings.timezone or UTC
        now = {"executionEpochSecond": int(time.time()), "timezone": zone}
        return {**now, **require_map(trigger_input)}


MAX_LISTENED_KEYS = 1000
MAX_KEY_PATTERNS = 20
"""Maximum keys with `*` of a listener, because each one is matched separately."""


class EventListenerParameters(Parameters):
    """The entities to listen to."""

    entities: Annotated[
        Annotated[list[EntityKey], msgspec.Meta(max_length=MAX_LISTENED_KEYS)] | str,
        parameter_meta(
            "Entities",
            "Keys of entities; * matches any characters",
            ui="entityMultipleSelect",
            ui_group="Entity Listening Setting",
        ),
    ]
    """A list, or a text with comma-separated keys."""

    def list_entity_keys(self) -> list[str]:
        """Return the distinct keys."""
        keys = self.entities.split(",") if isinstance(self.entities, str) else self.entities
        return list(dict.fromkeys(key.strip() for key in keys if key.strip()))

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield missing or too many keys, and patterns that match everything."""
        keys = self.list_entity_keys()
        if not keys:
            yield ParameterFault("entities", "must have at least one key")
        if len(keys) > MAX_LISTENED_KEYS:
            yield ParameterFault(
                "entities", f"must have at most {MAX_LISTENED_KEYS} keys. Got {len(keys)}."
            )
        patterns = [key for key in keys if "*" in key]
        if len(patterns) > MAX_KEY_PATTERNS:
            text = f"must have at most {MAX_KEY_PATTERNS} keys with *. Got {len(patterns)}."
            yield ParameterFault("entities", text)
        for key in keys:
            if len(key) > MAX_KEY_CHARACTERS:
                yield ParameterFault(
                    "entities", f"{key[:50]}… must have at most {MAX_KEY_CHARACTERS} characters"
                )
            if not key.strip("*"):
                yield ParameterFault("entities", "* alone matches all entities; add a prefix")


class EventListener(Entry[EventListenerParameters]):
    """Starts a flow with the new values of its entities, by key."""

    name = "eventListener"
    title = "Event Listener"
    description = "Runs the flow on new values of entities, for example when a device reports"

    def build_output(self, parameters: EventListenerParameters, trigger_input: Any) -> Any:
        """Return the values by key."""
        return require_map(trigger_input, " of values by entity key")


MAX_TOPIC_CHARACTERS = 512
MAX_TOPIC_LEVELS = 20


class SimpleMqttParameters(Parameters):
    """The topic to listen to."""

    subscription_topic: Annotated[
        str,
        parameter_meta(
            "Topic",
            "Topic below `beaver-iot/<access key>/`, for clients with the MQTT credential. `+` "
            "matches one level, `#` at the end matches all further levels",
            ui="mqttTopicInput",
            min_length=1,
            max_length=MAX_TOPIC_CHARACTERS,
        ),
    ]
    encoding: Annotated[
        Literal["UTF-8", "Base64"],
        parameter_meta("Encoding", "Encoding of the payload in the flow"),
    ] = "UTF-8"

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield a fault for an invalid topic filter."""
        if reason := _find_topic_fault(self.subscription_topic):
            yield ParameterFault("subscriptionTopic", reason)


class SimpleMqtt(Entry[SimpleMqttParameters]):
    """Starts a flow with a message: `topic` (below the prefix) and `payload`."""

    name = "simpleMqtt"
    title = "MQTT"
    description = "Runs the flow when a client of the tenant publishes to a topic"

    def build_output(self, parameters: SimpleMqttParameters, trigger_input: Any) -> dict[str, Any]:
        """Return the message.

        In a test, the defaults are the subscribed topic and an empty payload.
        """
        message = require_map(trigger_input, " with topic and payload")
        return {"topic": parameters.subscription_topic, "payload": "", **message}


def _find_topic_fault(topic: str) -> str:
    levels = topic.split("/")
    if len(levels) > MAX_TOPIC_LEVELS or not all(levels):
        return f"must have 1 to {MAX_TOPIC_LEVELS} levels, which must not be empty"
    if any(set(level) & set("+#") and level not in {"+", "#"} for level in levels):
        return "must have + and # as whole levels only"
    if "#" in levels[:-1]:
        return "must have # at its end only"
    if not topic.isprintable() or " " in topic:
        return "must be printable and without blanks"
    return ""
