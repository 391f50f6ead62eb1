"""`simpleMqtt`: starts a flow when an external MQTT client publishes a message."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import Fault, Parameters, parameter, read_map

LONGEST_TOPIC = 512
MOST_LEVELS = 20


class SimpleMqttParameters(Parameters):
    """The topic to listen to."""

    subscription_topic: Annotated[
        str,
        parameter(
            "Topic",
            "Below `beaver-iot/<access key>/`, for clients with the MQTT credential; `+` matches "
            "one level, `#` at the end all further levels",
            ui="mqttTopicInput",
            min_length=1,
            max_length=LONGEST_TOPIC,
        ),
    ]
    encoding: Annotated[
        Literal["UTF-8", "Base64"], parameter("Encoding", "Encoding of the payload in the flow")
    ] = "UTF-8"

    def faults(self) -> Iterable[Fault]:
        """Yield a fault for an invalid topic filter."""
        if reason := _find_topic_fault(self.subscription_topic):
            yield Fault("subscriptionTopic", reason)


class SimpleMqtt(Entry[SimpleMqttParameters]):
    """Starts a flow with a message: `topic` (below the prefix) and `payload`."""

    name = "simpleMqtt"
    title = "MQTT"
    description = "Runs the flow when a client of the tenant publishes to a topic"

    def entered(self, parameters: SimpleMqttParameters, given: Any) -> dict[str, Any]:
        """Return the message; fields missing in a test are empty."""
        found = read_map(given, " with topic and payload")
        return {"topic": parameters.subscription_topic, "payload": "", **found}


def _find_topic_fault(topic: str) -> str:
    levels = topic.split("/")
    if len(levels) > MOST_LEVELS or not all(levels):
        return f"must have 1 to {MOST_LEVELS} levels, which must not be empty"
    if any(set(level) & set("+#") and level not in {"+", "#"} for level in levels):
        return "must have + and # as whole levels only"
    if "#" in levels[:-1]:
        return "must have # at its end only"
    if not topic.isprintable() or " " in topic:
        return "must be printable and without blanks"
    return ""
