"""What `tts` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.networks.parts import ADD, DELETE, network_tsl
from services.management.builtin.networks.settings import broker_properties, hook_property
from services.management.builtin.tsl import text_input

DEVICE = "device"

MANIFEST = Manifest(
    id="tts",
    name="The Things Stack",
    description="LoRaWAN devices of an application of The Things Stack 3 (The Things Network)",
    icon="/public/tts.svg",
    tsl=network_tsl(
        text_input(
            ADD,
            DEVICE,
            "Device ID",
            "As the application calls it; it is learned with an uplink",
            validator={"maxSize": 64},
        ),
        settings=[*broker_properties(), hook_property()],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
