"""`milesight` of all tenants."""

from typing import Any

from libs.common.contracts.integrations import NOT_SET, DeviceRef, PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.builtin.networks.heard import Carried, Heard, Queued, Route
from services.management.builtin.networks.milesight import messages
from services.management.builtin.networks.milesight.manifest import (
    DOWNLINKS,
    MANIFEST,
    TOPICS,
    UPLINKS,
)
from services.management.builtin.networks.mqtt import check_topic
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.settings import Broker, text_of


class Milesight(NetworkServer):
    """Hears what gateways tell to a broker, at the topics that are typed into them."""

    manifest = MANIFEST
    own_settings = TOPICS

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take topics and the rest; raises `InvalidInput`."""
        for key in TOPICS:
            topic = text_of(change.properties, key)
            if topic.count(messages.DEVICE) > 1 or "\0" in topic:
                raise InvalidInput("is no topic with one $deveui", field=key)
            if topic:
                check_topic(topic.replace(messages.DEVICE, "+"), key)
            if key == DOWNLINKS and topic and (messages.DEVICE not in topic or {*"+#"} & {*topic}):
                raise InvalidInput("must have $deveui and no + or #", field=key)
        await super().updated(change)

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """All that are set, of any device."""
        if not values[UPLINKS]:
            raise InvalidInput("is not set", field=UPLINKS, code=NOT_SET)
        heard = (values[key] for key in TOPICS if key != DOWNLINKS and values[key])
        return [one.replace(messages.DEVICE, "+") for one in dict.fromkeys(heard)]

    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """An uplink, or what became of a downlink."""
        return messages.read(tenant, payload)

    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """A downlink at the topic of the device."""
        if not values[DOWNLINKS]:
            raise InvalidInput("is not set", field=DOWNLINKS, code=NOT_SET)
        return messages.queued(carried, values[DOWNLINKS])

    async def _route(self, device: DeviceRef) -> Route:
        """Its DevEUI is all that the topic needs."""
        return Route()
