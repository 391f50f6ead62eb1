"""`mqttPublish`: a message to a topic of an MQTT broker."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import Fault, Parameters, parameter
from services.workflow.outgoing.mqtt import MqttBroker, OutgoingMqtt, Publication

LONGEST_TOPIC = 1024
LARGEST_PAYLOAD = 256 * 1024
"""Bytes."""


class MqttPublishParameters(Parameters):
    """What to publish, and where."""

    secrets_go_to = ("broker", "host")

    broker: Annotated[MqttBroker, parameter("Broker", "What takes the message")]
    topic: Annotated[str, parameter("Topic", min_length=1, max_length=LONGEST_TOPIC)]
    payload: Annotated[
        Any,
        parameter("Payload", "Text as it is, everything else as JSON; by default what came in"),
    ] = None
    qos: Annotated[int, parameter("QoS", "0, 1 or 2", ge=0, le=2)] = 0
    retain: Annotated[bool, parameter("Retain", "Whether the broker keeps it")] = False

    def faults(self) -> Iterable[Fault]:
        """Topics that nothing can be published to."""
        if reason := _wrong_with(self.topic.replace("#{", "")):
            yield Fault("topic", reason)


class MqttPublish(Step[MqttPublishParameters]):
    """Publishes; what came in goes on unchanged."""

    name = "mqttPublish"
    title = "MQTT Publish"
    description = "Publishes a message at an MQTT broker"
    group = Group.EXTERNAL

    def __init__(self, mqtt: OutgoingMqtt) -> None:
        self._mqtt = mqtt

    async def run(self, context: NodeContext, parameters: MqttPublishParameters, body: Any) -> Any:
        """Publish; a dry run only looks whether it could be."""
        broker = context.texts(parameters.broker)
        publication = _publication(context, parameters, body)
        if context.dry_run:
            await self._mqtt.check(broker, context.seconds_left)
        else:
            await self._mqtt.publish(broker, publication, context.seconds_left)
        return body


def _publication(context: NodeContext, parameters: MqttPublishParameters, body: Any) -> Publication:
    topic = context.text(parameters.topic)
    if reason := _wrong_with(topic):
        raise NodeFailed(f"the topic {topic:.60} {reason}")
    content = body if parameters.payload is None else context.resolve(parameters.payload)
    payload = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    if len(payload) > LARGEST_PAYLOAD:
        raise NodeFailed(f"the payload has more than {LARGEST_PAYLOAD} bytes")
    return Publication(topic=topic, payload=payload, qos=parameters.qos, retain=parameters.retain)


def _wrong_with(topic: str) -> str:
    if any(mark in topic for mark in "+#\0"):
        return "must not have +, # or a null character: they are for subscriptions"
    return "" if topic.strip() else "must not be empty"
