"""What `webhook` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.networks.parts import ADD, DELETE, network_tsl
from services.management.builtin.networks.settings import hook_property
from services.management.builtin.networks.webhook import presets
from services.management.builtin.networks.webhook.mapping import LONGEST
from services.management.builtin.tsl import Part, own_property


def _pointer(key: str, title: str, text: str) -> Part:
    return own_property(key, title, "RW", text, dataType="STRING", validator={"maxSize": LONGEST})


MANIFEST = Manifest(
    id="webhook",
    name="Webhook",
    description="LoRaWAN devices of any network server that posts JSON",
    icon="/public/webhook.svg",
    tsl=network_tsl(
        settings=[
            hook_property(),
            own_property(
                presets.PRESET,
                "Network server",
                "RW",
                "Which server posts; the pointers below count for own JSON pointers only",
                dataType="ENUM",
                mapping=presets.NAMES,
            ),
            _pointer(presets.DEVICE, "DevEUI", "Where it stands in the JSON, as /device/devEui"),
            _pointer(presets.DATA, "Bytes", "Where the payload stands, as /data"),
            own_property(
                presets.ENCODING,
                "Encoding",
                "RW",
                "How the bytes are written; base64 when it is not set",
                dataType="ENUM",
                mapping={"base64": "Base64", presets.HEX: "Hexadecimal"},
            ),
            _pointer(presets.PORT, "Port", "Where the port stands, as /fPort, or its number"),
            _pointer(presets.TIME, "Time", "ISO 8601, seconds or ms; now when it is not set"),
            _pointer(
                presets.COUNTER, "Counter", "The frame counter: what comes again is known by it"
            ),
            _pointer(
                presets.SESSION, "Session", "What changes with each join, as the device address"
            ),
            _pointer(presets.RSSI, "RSSI", "dBm"),
            _pointer(presets.SNR, "SNR", "dB"),
            _pointer(presets.GATEWAY, "Gateway", "Who heard it"),
            _pointer(presets.DATA_RATE, "Data rate", "As SF7BW125"),
            _pointer(presets.FREQUENCY, "Frequency", "Hz"),
        ],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
