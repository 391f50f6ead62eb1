"""`webhook`: devices of any network server that posts JSON."""

from typing import Any

from libs.common.contracts.frames import CarryDownlinks
from libs.common.contracts.integrations import PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.networks import webhook_mapping as mapping
from services.management.networks.messages import InboundMessage, OutboundDownlink, Publication
from services.management.networks.server import NetworkServer, create_manifest
from services.management.networks.settings import Broker, hook_property
from services.management.tsl import own_property, text_property

PORT_POINTERS = (
    (mapping.PORT, "Port", "Where the port stands, as /fPort, or its number"),
    (mapping.TIME, "Time", "ISO 8601, seconds or ms; now when it is not set"),
    (mapping.COUNTER, "Counter", "The frame counter: what comes again is known by it"),
    (mapping.SESSION, "Session", "What changes with each join, as the device address"),
    (mapping.RSSI, "RSSI", "dBm"),
    (mapping.SNR, "SNR", "dB"),
    (mapping.GATEWAY, "Gateway", "Who heard it"),
    (mapping.DATA_RATE, "Data rate", "As SF7BW125"),
    (mapping.FREQUENCY, "Frequency", "Hz"),
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
            "Which server posts; the pointers below count for own JSON pointers only",
            dataType="ENUM",
            mapping=mapping.NAMES,
        ),
        text_property(
            mapping.DEVICE,
            "DevEUI",
            "RW",
            "Where it stands in the JSON, as /device/devEui",
            mapping.LONGEST,
        ),
        text_property(
            mapping.DATA, "Bytes", "RW", "Where the payload stands, as /data", mapping.LONGEST
        ),
        own_property(
            mapping.ENCODING,
            "Encoding",
            "RW",
            "How the bytes are written; base64 when it is not set",
            dataType="ENUM",
            mapping={"base64": "Base64", mapping.HEX: "Hexadecimal"},
        ),
        *(
            text_property(key, title, "RW", text, mapping.LONGEST)
            for key, title, text in PORT_POINTERS
        ),
    ],
)


class Webhook(NetworkServer):
    """Takes what is posted; it has no broker, and nothing goes back."""

    manifest = MANIFEST
    own_settings = (mapping.PRESET, *mapping.POINTERS, mapping.ENCODING)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take the mapping and the token; raises `InvalidInput`."""
        mapping.check_settings(change.properties)
        await super().updated(change)

    async def downlink(self, wanted: CarryDownlinks) -> None:
        """Raise `InvalidInput`: there is nobody to give it to."""
        raise InvalidInput("a webhook takes no downlinks", field="integration")

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """None."""
        return []

    def read(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Nothing comes by a broker."""
        return None

    def read_hook(self, tenant: str, body: bytes, values: dict[str, Any]) -> InboundMessage | None:
        """What the mapping finds in a body."""
        return mapping.read_body(tenant, body, values)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Nothing goes by a broker."""
        raise InvalidInput("a webhook takes no downlinks", field="integration")
