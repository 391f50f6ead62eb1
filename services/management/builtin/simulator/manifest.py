"""What `simulator` announces."""

from libs.common.contracts.integrations import Manifest
from services.management.builtin.tsl import document, number_input, service, text_input

SHORTEST, LONGEST, DEFAULT = 1, 86_400, 10
"""Seconds between the reports of a device."""

MANIFEST = Manifest(
    id="simulator",
    name="Simulator",
    description="Virtual devices of your products, with plausible values",
    icon="/public/simulator.svg",
    tsl=document(
        service(
            "add_device",
            "Add device",
            text_input(
                "add_device",
                "model",
                "Model",
                "The product that the device is one of",
                validator={"minSize": 1, "maxSize": 64, "required": True},
            ),
            number_input(
                "add_device",
                "interval",
                "Interval",
                "Time between two reports",
                unitName="s",
                defaultValue=str(DEFAULT),
                validator={"min": SHORTEST, "max": LONGEST},
            ),
        ),
        service("delete_device", "Delete device"),
    ),
    add_device_service="add_device",
    delete_device_service="delete_device",
    carries_commands=True,
)
