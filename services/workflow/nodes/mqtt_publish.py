"""`mqttPublish`: publishes a message to an MQTT broker."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import Fault, Parameters, parameter
from services.workflow.outgoing.mqtt import MqttBroker, OutgoingMqtt, Publication

LONGEST_TOPIC = 1024
LARGEST_PAYLOAD = 256 * 1024
"""Maximum bytes of a payload."""


class MqttPublishParameters(Parameters):
    """The message and the broker."""

    secrets_go_to = ("broker", "host")

    broker: Annotated[MqttBroker, parameter("Broker", "The MQTT broker")]
    topic: Annotated[str, parameter("Topic", min_length=1, max_length=LONGEST_TOPIC)]
    payload: Annotated[
        Any,
        parameter("Payload", "Text unchanged, all other values as JSON. Default: the input"),
    ] = None
    qos: Annotated[int, parameter("QoS", "0, 1 or 2", ge=0, le=2)] = 0
    retain: Annotated[bool, parameter("Retain", "Whether the broker retains the message")] = False

    def faults(self) -> Iterable[Fault]:
        """Yield a fault for an invalid topic."""
        if reason := _find_topic_fault(self.topic.replace("#{", "")):
            yield Fault("topic", reason)


class MqttPublish(Step[MqttPublishParameters]):
    """Publishes a message. The output is the input."""

    name = "mqttPublish"
    title = "MQTT Publish"
    description = "Publishes a message to an MQTT broker"
    group = Group.EXTERNAL

    def __init__(self, mqtt: OutgoingMqtt) -> None:
        self._mqtt = mqtt

    async def run(self, context: NodeContext, parameters: MqttPublishParameters, body: Any) -> Any:
        """Publish the message; a dry run only checks the broker's host."""
        broker = context.resolve_texts(parameters.broker)
        publication = _build_publication(context, parameters, body)
        if context.dry_run:
            await self._mqtt.check(broker, context.seconds_left)
        else:
            await self._mqtt.publish(broker, publication, context.seconds_left)
        return body


def _build_publication(
    context: NodeContext, parameters: MqttPublishParameters, body: Any
) -> Publication:
    topic = context.resolve_text(parameters.topic)
    if reason := _find_topic_fault(topic):
        raise NodeFailed(f"the topic {topic:.60} {reason}")
    content = body if parameters.payload is None else context.resolve(parameters.payload)
    payload = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    if len(payload) > LARGEST_PAYLOAD:
        raise NodeFailed(f"the payload must have at most {LARGEST_PAYLOAD} bytes")
    return Publication(topic=topic, payload=payload, qos=parameters.qos, retain=parameters.retain)


def _find_topic_fault(topic: str) -> str:
    if any(mark in topic for mark in "+#\0"):
        return "must not have +, # or null characters"
    return "" if topic.strip() else "must not be empty"
