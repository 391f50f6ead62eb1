"""What `milesight` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.networks.parts import ADD, DELETE, network_tsl
from services.management.builtin.networks.settings import broker_properties
from services.management.builtin.tsl import Part, own_property

UPLINKS, DOWNLINKS, ACKS, ERRORS = "uplink_topic", "downlink_topic", "ack_topic", "error_topic"
TOPICS = (UPLINKS, DOWNLINKS, ACKS, ERRORS)
LONGEST_TOPIC = 255


def _topic(key: str, title: str, text: str) -> Part:
    return own_property(
        key, title, "RW", text, dataType="STRING", validator={"maxSize": LONGEST_TOPIC}
    )


MANIFEST = Manifest(
    id="milesight",
    name="Milesight gateway",
    description="LoRaWAN devices of the network server in Milesight gateways",
    icon="/public/milesight.svg",
    tsl=network_tsl(
        settings=[
            *broker_properties(),
            _topic(UPLINKS, "Uplink topic", "As in the gateway: gw/up or gw/$deveui/up"),
            _topic(DOWNLINKS, "Downlink topic", "The same, with $deveui: gw/$deveui/down"),
            _topic(ACKS, "ACK topic", "Where the gateway tells acknowledgements, if it does"),
            _topic(ERRORS, "Error topic", "Where the gateway tells errors, if it does"),
        ],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
