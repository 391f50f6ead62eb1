"""Parts of the TSLs of the built-in integrations."""

from collections.abc import Sequence
from typing import Any

Part = dict[str, Any]


def document(*services: Part, properties: Sequence[Part] = ()) -> Part:
    """A TSL without events."""
    return {
        "version": "v1.0",
        "properties": list(properties),
        "events": [],
        "services": list(services),
    }


def service(name: str, title: str, *inputs: Part, description: str = "") -> Part:
    """A service that is called and answers."""
    return {
        "id": name,
        "name": title,
        "description": description,
        "callType": "SYNC",
        "inputs": list(inputs),
        "outputs": [],
    }


def text_input(owner: str, name: str, title: str, description: str, **more: Any) -> Part:
    """An input of type STRING."""
    return _input(owner, name, title, description, {"dataType": "STRING", "encoding": "UTF8"}, more)


def number_input(owner: str, name: str, title: str, description: str, **more: Any) -> Part:
    """An input of type INT."""
    return _input(owner, name, title, description, {"dataType": "INT"}, more)


def _input(owner: str, name: str, title: str, description: str, spec: Part, more: Part) -> Part:
    return {
        "id": f"{owner}.{name}",
        "name": title,
        "description": description,
        "dataSpec": {**spec, "parentId": owner, **more},
    }


def own_property(name: str, title: str, access: str, description: str, **spec: Any) -> Part:
    """A property of the integration itself."""
    return {
        "id": name,
        "propertyKey": name,
        "name": title,
        "description": description,
        "accessMode": access,
        "dataSpec": spec,
    }
