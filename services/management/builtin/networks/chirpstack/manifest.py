"""What `chirpstack` announces."""

from libs.common.contracts.integrations import Manifest
from libs.common.http.outgoing import LONGEST_URL
from services.management.builtin.networks.parts import (
    ADD,
    DELETE,
    application_input,
    network_tsl,
)
from services.management.builtin.networks.settings import broker_properties
from services.management.builtin.tsl import own_property, text_input

APPLICATION = "application"
API, API_TOKEN = "api", "api_token"
PROFILE, JOIN_EUI, APP_KEY = "device_profile", "join_eui", "app_key"

MANIFEST = Manifest(
    id="chirpstack",
    name="ChirpStack",
    description="LoRaWAN devices of a ChirpStack 4 server",
    icon="/public/chirpstack.svg",
    tsl=network_tsl(
        application_input("ID of its application in ChirpStack; it is learned with an uplink"),
        text_input(
            ADD,
            PROFILE,
            "Device profile",
            "ID in ChirpStack: the device is registered there with it; empty when it is there",
            validator={"maxSize": 64},
        ),
        text_input(
            ADD, JOIN_EUI, "JoinEUI", "To be registered: 16 digits", validator={"maxSize": 32}
        ),
        text_input(
            ADD,
            APP_KEY,
            "AppKey",
            "To be registered, for a device that joins: 32 hexadecimal digits; it is not kept here",
            validator={"maxSize": 64},
        ),
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
            own_property(
                API,
                "API",
                "RW",
                "Of ChirpStack, to register devices: https://host:443 or http://host:8080",
                dataType="STRING",
                validator={"maxSize": LONGEST_URL},
            ),
            own_property(
                API_TOKEN,
                "API key",
                "W",
                "Of ChirpStack, never shown; it is given anew with another API",
                dataType="STRING",
                validator={"maxSize": 4096},
            ),
        ],
    ),
    add_device_service=ADD,
    identifier_input="dev_eui",
    delete_device_service=DELETE,
    carries_frames=True,
)
