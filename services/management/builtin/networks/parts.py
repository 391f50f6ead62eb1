"""What the manifests of network servers have in common."""

from services.management.builtin.networks.state import state_properties
from services.management.builtin.tsl import Part, document, service, text_input

ADD, DELETE = "add_device", "delete_device"


def network_tsl(*inputs: Part, settings: list[Part], services: tuple[Part, ...] = ()) -> Part:
    """A TSL with a service that adds devices by DevEUI and model, settings and state.

    `inputs` are what else a device is added with.
    """
    return document(
        service(
            ADD,
            "Add device",
            text_input(
                ADD,
                "dev_eui",
                "DevEUI",
                "16 hexadecimal digits, as printed on the device",
                validator={"minSize": 16, "maxSize": 32, "required": True},
            ),
            text_input(
                ADD,
                "model",
                "Model",
                "A product of yours, whose codec reads what the device sends",
                validator={"minSize": 1, "maxSize": 64, "required": True},
            ),
            *inputs,
        ),
        service(DELETE, "Delete device"),
        *services,
        properties=[*settings, *state_properties()],
    )


def application_input(description: str) -> Part:
    """Where downlinks go before anything was heard of a device."""
    return text_input(ADD, "application", "Application", description, validator={"maxSize": 64})
