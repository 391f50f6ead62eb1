"""Parts of the TSLs of the built-in integrations."""

from collections.abc import Sequence
from typing import Any

Part = dict[str, Any]

ADD, DELETE = "add_device", "delete_device"
"""The services of every integration with devices."""


def document(*inputs: Part, services: Sequence[Part] = (), properties: Sequence[Part] = ()) -> Part:
    """Return a TSL without events; devices are added with `inputs`, and can be deleted."""
    return {
        "version": "v1.0",
        "properties": list(properties),
        "events": [],
        "services": [
            service(ADD, "Add device", *inputs),
            service(DELETE, "Delete device"),
            *services,
        ],
    }


def service(name: str, title: str, *inputs: Part, description: str = "") -> Part:
    """Return a service that is called synchronously."""
    return {
        "id": name,
        "name": title,
        "description": description,
        "callType": "SYNC",
        "inputs": list(inputs),
        "outputs": [],
    }


def text_input(name: str, title: str, description: str, maximum: int, *, least: int = 0) -> Part:
    """Return a STRING input with at most `maximum` characters, required if `least` is set."""
    required = {"minSize": least, "maxSize": maximum, "required": True}
    validator = required if least else {"maxSize": maximum}
    text = {"dataType": "STRING", "encoding": "UTF8"}
    return device_input(name, title, description, text, validator=validator)


def device_input(name: str, title: str, description: str, kind: Part, **more: Any) -> Part:
    """Return an input of the service that adds devices; `kind` is its type."""
    return {
        "id": f"{ADD}.{name}",
        "name": title,
        "description": description,
        "dataSpec": {**kind, "parentId": ADD, **more},
    }


def own_property(name: str, title: str, access: str, description: str, **spec: Any) -> Part:
    """Return a property of the integration itself."""
    return {
        "id": name,
        "propertyKey": name,
        "name": title,
        "description": description,
        "accessMode": access,
        "dataSpec": spec,
    }


def text_property(name: str, title: str, access: str, description: str, maximum: int = 0) -> Part:
    """Return a text property of the integration, with at most `maximum` characters."""
    bound = {"validator": {"maxSize": maximum}} if maximum else {}
    return own_property(name, title, access, description, dataType="STRING", **bound)
