"""`direct`: devices that connect to the platform themselves, over MQTT, HTTP or NATS."""

import re

from libs.common.contracts.integrations import AddDevice, Manifest, NewDevice
from libs.common.errors import InvalidInput
from libs.common.integrations import Integration
from libs.common.things import DIRECT
from services.management.builtin.tsl import document, service, text_input

SERIAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A token of a subject and a level of a topic, as `device` takes it."""

TSL = document(
    service(
        "add_device",
        "Add device",
        text_input(
            "add_device",
            "sn",
            "SN",
            "Serial number, as the device logs in with it",
            validator={"minSize": 1, "maxSize": 64, "required": True},
        ),
        text_input(
            "add_device",
            "model",
            "Model",
            "A product of yours; without it the SN's prefix decides",
            validator={"maxSize": 64},
        ),
    ),
    service("delete_device", "Delete device"),
)


class Direct(Integration):
    """Takes the SN as it is; whether the product exists and the SN is free, `device` knows."""

    manifest = Manifest(
        id=DIRECT,
        name="Direct connection",
        description="Devices that connect over MQTT, HTTP or NATS with SN and device key",
        icon="/public/direct.svg",
        tsl=TSL,
        add_device_service="add_device",
        identifier_input="sn",
        delete_device_service="delete_device",
    )

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """Name the SN as the identifier; raise `InvalidInput` when it cannot be one."""
        serial = wanted.params["sn"]
        if not SERIAL.fullmatch(serial):
            raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="sn")
        return NewDevice(identifier=serial, model=wanted.params.get("model") or "")
