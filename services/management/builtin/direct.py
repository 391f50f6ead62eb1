"""`direct` and `system`: integrations without connections of their own."""

import re

from libs.common.contracts.integrations import AddDevice, Manifest, NewDevice
from libs.common.errors import InvalidInput
from libs.common.integrations import Integration
from libs.common.things import DIRECT, SYSTEM
from services.management.tsl import ADD, DELETE, document, text_input

SERIAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A token of a subject and a level of a topic, as `device` takes it."""


class System(Integration):
    """Has no devices; what is called on it is answered by its owners, not here."""

    manifest = Manifest(
        id=SYSTEM,
        name="System",
        description="Custom entities and flows",
        icon="/public/system.svg",
        hidden=True,
    )


class Direct(Integration):
    """Takes the SN as it is; whether the product exists and the SN is free, `device` knows."""

    manifest = Manifest(
        id=DIRECT,
        name="Direct connection",
        description="Devices that connect over MQTT, HTTP or NATS with SN and device key",
        icon="/public/direct.svg",
        tsl=document(
            text_input("sn", "SN", "Serial number, as the device logs in with it", 64, least=1),
            text_input(
                "model", "Model", "A product of yours; without it the SN's prefix decides", 64
            ),
        ),
        add_device_service=ADD,
        identifier_input="sn",
        delete_device_service=DELETE,
    )

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """Name the SN as the identifier; raise `InvalidInput` when it cannot be one."""
        serial = wanted.params["sn"]
        if not SERIAL.fullmatch(serial):
            raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="sn")
        return NewDevice(identifier=serial, model=wanted.params.get("model") or "")
