"""`chirpstack` of all tenants."""

from typing import Any

from services.management.builtin.networks.chirpstack import events
from services.management.builtin.networks.chirpstack.manifest import APPLICATION, MANIFEST
from services.management.builtin.networks.heard import Carried, Heard, Queued
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.settings import Broker


class ChirpStack(NetworkServer):
    """Hears the events of ChirpStack's MQTT integration and publishes its commands."""

    manifest = MANIFEST
    own_settings = (APPLICATION,)

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Events of one application, or of all."""
        application = values[APPLICATION] or "+"
        return [f"application/{application}/device/+/event/{kind}" for kind in events.KINDS]

    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """An event in JSON or protobuf."""
        return events.read(tenant, topic, payload)

    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """A command, in the encoding that the server speaks."""
        return events.queued(carried)
