"""The integration `webhook`: devices of any network server that posts JSON."""

from typing import Any

from libs.common.contracts.frames import QueueDownlinks
from libs.common.contracts.integrations import PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.networks import webhook_mapping as mapping
from services.management.networks.messages import InboundMessage, OutboundDownlink, Publication
from services.management.networks.server import NetworkServer, create_manifest
from services.management.networks.settings import Broker, hook_property
from services.management.tsl import own_property, text_property

PORT_POINTERS = (
    (mapping.PORT, "Port", "Pointer to the port, such as /fPort, or its number"),
    (mapping.TIME, "Time", "Pointer to ISO 8601, seconds or ms; if empty, the time of reception"),
    (mapping.COUNTER, "Counter", "Pointer to the frame counter, which identifies duplicates"),
    (mapping.SESSION, "Session", "Pointer to a value that changes with each join (DevAddr)"),
    (mapping.RSSI, "RSSI", "Pointer to dBm"),
    (mapping.SNR, "SNR", "Pointer to dB"),
    (mapping.GATEWAY, "Gateway", "Pointer to the gateway that received the uplink"),
    (mapping.DATA_RATE, "Data rate", "Pointer to a data rate such as SF7BW125"),
    (mapping.FREQUENCY, "Frequency", "Pointer to Hz"),
)

MANIFEST = create_manifest(
    "webhook",
    "Webhook",
    "LoRaWAN devices of any network server that posts JSON",
    properties=[
        hook_property(),
        own_property(
            mapping.PRESET,
            "Network server",
            "RW",
            "The server that posts; only own JSON pointers use the pointers below",
            dataType="ENUM",
            mapping=mapping.NAMES,
        ),
        text_property(
            mapping.DEVICE,
            "DevEUI",
            "RW",
            "Pointer to the DevEUI, such as /device/devEui",
            mapping.MAX_POINTER,
        ),
        text_property(
            mapping.DATA,
            "Bytes",
            "RW",
            "Pointer to the payload, such as /data",
            mapping.MAX_POINTER,
        ),
        own_property(
            mapping.ENCODING,
            "Encoding",
            "RW",
            "Encoding of the payload; base64 by default",
            dataType="ENUM",
            mapping={"base64": "Base64", mapping.HEX: "Hexadecimal"},
        ),
        *(
            text_property(key, title, "RW", text, mapping.MAX_POINTER)
            for key, title, text in PORT_POINTERS
        ),
    ],
)


class Webhook(NetworkServer):
    """Receives posted messages; it has no broker, and no downlinks."""

    manifest = MANIFEST
    own_settings = (mapping.PRESET, *mapping.POINTERS, mapping.ENCODING)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store the mapping and the token; raise `InvalidInput`."""
        mapping.check_settings(change.properties)
        await super().updated(change)

    async def downlink(self, request: QueueDownlinks) -> None:
        """Raise `InvalidInput`, because webhooks have no downlinks."""
        raise InvalidInput("a webhook does not support downlinks", field="integration")

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return no topics."""
        return []

    def read(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return None, because there is no broker."""
        return None

    def read_hook(self, tenant: str, body: bytes, values: dict[str, Any]) -> InboundMessage | None:
        """Return the message that the mapping finds in a body."""
        return mapping.read_body(tenant, body, values)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Raise `InvalidInput`, because webhooks have no downlinks."""
        raise InvalidInput("a webhook does not support downlinks", field="integration")
