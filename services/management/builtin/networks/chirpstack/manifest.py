"""What `chirpstack` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.networks.parts import (
    ADD,
    DELETE,
    application_input,
    network_tsl,
)
from services.management.builtin.networks.settings import broker_properties
from services.management.builtin.tsl import own_property

APPLICATION = "application"

MANIFEST = Manifest(
    id="chirpstack",
    name="ChirpStack",
    description="LoRaWAN devices of a ChirpStack 4 server",
    icon="/public/chirpstack.svg",
    tsl=network_tsl(
        application_input("ID of its application in ChirpStack; it is learned with an uplink"),
        settings=[
            *broker_properties(),
            own_property(
                APPLICATION,
                "Application",
                "RW",
                "ID of the one application to hear; empty for all that the broker shows",
                dataType="STRING",
                validator={"maxSize": 64},
            ),
        ],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
