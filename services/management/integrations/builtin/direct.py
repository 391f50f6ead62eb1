"""`direct`: devices that connect to the platform themselves, over MQTT, HTTP or NATS."""

from typing import Any

from libs.common.contracts.integrations import AddDevice, Manifest, NewDevice
from libs.common.integrations import Integration
from libs.common.things import DIRECT


def text_input(
    service: str, name: str, title: str, description: str, **more: Any
) -> dict[str, Any]:
    """An input of type STRING as a TSL has it."""
    return {
        "id": f"{service}.{name}",
        "name": title,
        "description": description,
        "dataSpec": {"dataType": "STRING", "parentId": service, "encoding": "UTF8", **more},
    }


TSL = {
    "version": "v1.0",
    "properties": [],
    "events": [],
    "services": [
        {
            "id": "add_device",
            "name": "Add device",
            "callType": "SYNC",
            "inputs": [
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
            ],
            "outputs": [],
        },
        {
            "id": "delete_device",
            "name": "Delete device",
            "callType": "SYNC",
            "inputs": [],
            "outputs": [],
        },
    ],
}


class Direct(Integration):
    """Takes the SN as it is; whether the product exists and the SN is free, `device` knows."""

    manifest = Manifest(
        id=DIRECT,
        name="Direct connection",
        description="Devices that connect over MQTT, HTTP or NATS with SN and device key",
        icon="/public/direct.svg",
        tsl=TSL,
        add_device_service="add_device",
        delete_device_service="delete_device",
    )

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """Name the SN as the identifier."""
        return NewDevice(identifier=wanted.params["sn"], model=wanted.params.get("model") or "")
