"""What `webhook` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.networks.parts import ADD, DELETE, network_tsl
from services.management.builtin.networks.settings import hook_property
from services.management.builtin.networks.webhook import mapping
from services.management.builtin.tsl import Part, own_property


def _pointer(key: str, title: str, text: str) -> Part:
    return own_property(
        key, title, "RW", text, dataType="STRING", validator={"maxSize": mapping.LONGEST}
    )


MANIFEST = Manifest(
    id="webhook",
    name="Webhook",
    description="LoRaWAN devices of any network server that posts JSON",
    icon="/public/webhook.svg",
    tsl=network_tsl(
        settings=[
            hook_property(),
            _pointer(mapping.DEVICE, "DevEUI", "Where it stands in the JSON, as /device/devEui"),
            _pointer(mapping.DATA, "Bytes", "Where the payload stands, as /data"),
            own_property(
                mapping.ENCODING,
                "Encoding",
                "RW",
                "How the bytes are written; base64 when it is not set",
                dataType="ENUM",
                mapping={"base64": "Base64", mapping.HEX: "Hexadecimal"},
            ),
            _pointer(mapping.PORT, "Port", "Where the port stands, as /fPort, or its number"),
            _pointer(mapping.TIME, "Time", "ISO 8601, seconds or ms; now when it is not set"),
            _pointer(
                mapping.COUNTER, "Counter", "The frame counter: what comes again is known by it"
            ),
            _pointer(
                mapping.SESSION, "Session", "What changes with each join, as the device address"
            ),
            _pointer(mapping.RSSI, "RSSI", "dBm"),
            _pointer(mapping.SNR, "SNR", "dB"),
            _pointer(mapping.GATEWAY, "Gateway", "Who heard it"),
            _pointer(mapping.DATA_RATE, "Data rate", "As SF7BW125"),
            _pointer(mapping.FREQUENCY, "Frequency", "Hz"),
        ],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
