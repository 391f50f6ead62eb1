"""The integrations `direct` and `system`, which have no connections of their own."""

import re

from libs.common.contracts.integrations import AddDevice, Manifest, NewDevice
from libs.common.errors import InvalidInput
from libs.common.integrations import Integration
from libs.common.things import DIRECT, SYSTEM
from services.management.tsl import ADD, DELETE, document, text_input

SERIAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Permitted SNs: a token of a subject and a level of a topic."""


class System(Integration):
    """The owner of custom entities and flows, without devices; other services answer its calls."""

    manifest = Manifest(
        id=SYSTEM,
        name="System",
        description="Custom entities and flows",
        icon="/public/system.svg",
        hidden=True,
    )


class Direct(Integration):
    """Devices with a given SN; `device` checks that the product exists and the SN is free."""

    manifest = Manifest(
        id=DIRECT,
        name="Direct connection",
        description="Devices that connect over MQTT, HTTP or NATS with SN and device key",
        icon="/public/direct.svg",
        tsl=document(
            text_input("sn", "SN", "Serial number with which the device logs in", 64, least=1),
            text_input(
                "model", "Model", "One of your products; if empty, the SN's prefix selects it", 64
            ),
        ),
        add_device_service=ADD,
        identifier_input="sn",
        delete_device_service=DELETE,
    )

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return the SN as identifier; raise `InvalidInput` if it is invalid."""
        serial = request.params["sn"]
        if not SERIAL.fullmatch(serial):
            raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="sn")
        return NewDevice(identifier=serial, model=request.params.get("model") or "")
