"""`simpleMqtt`: the flow begins when an MQTT client outside publishes."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import Fault, Parameters, parameter, read_map

LONGEST_TOPIC = 512
MOST_LEVELS = 20


class SimpleMqttParameters(Parameters):
    """What is listened to."""

    subscription_topic: Annotated[
        str,
        parameter(
            "Topic",
            "Below `beaver-iot/<access key>/`, for clients with the MQTT credential; `+` stands "
            "for a level, `#` at the end for all below",
            ui="mqttTopicInput",
            min_length=1,
            max_length=LONGEST_TOPIC,
        ),
    ]
    encoding: Annotated[
        Literal["UTF-8", "Base64"], parameter("Encoding", "How the flow is given a payload")
    ] = "UTF-8"

    def faults(self) -> Iterable[Fault]:
        """Topics that nobody can publish to."""
        if reason := _wrong_with(self.subscription_topic):
            yield Fault("subscriptionTopic", reason)


class SimpleMqtt(Entry[SimpleMqttParameters]):
    """Begins a flow with a message: `topic` (below the prefix) and `payload`."""

    name = "simpleMqtt"
    title = "MQTT"
    description = "Runs the flow when a client of the tenant publishes to a topic"

    def entered(self, parameters: SimpleMqttParameters, given: Any) -> dict[str, Any]:
        """The message; what is missing in a test is empty."""
        found = read_map(given, " with topic and payload")
        return {"topic": parameters.subscription_topic, "payload": "", **found}


def _wrong_with(topic: str) -> str:
    levels = topic.split("/")
    if len(levels) > MOST_LEVELS or not all(levels):
        return f"must have 1 to {MOST_LEVELS} levels, none of them empty"
    if any(set(one) & set("+#") and one not in {"+", "#"} for one in levels):
        return "may have + and # as whole levels only"
    if "#" in levels[:-1]:
        return "may have # at its end only"
    if not topic.isprintable() or " " in topic:
        return "must be printable, without blanks"
    return ""
