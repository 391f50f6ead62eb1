"""Manifests of the built-in integrations, which `manifests.toml` describes."""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from libs.common.contracts.integrations import Manifest

ManifestPart = dict[str, Any]

ADD, DELETE = "add_device", "delete_device"
"""Ids of the two services of every integration with devices."""
_MANIFEST_DESCRIPTIONS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def load_manifest(integration: str) -> Manifest:
    """Return the manifest of a built-in integration."""
    row = dict(_MANIFEST_DESCRIPTIONS["manifests"][integration])
    if "inputs" in row:
        row |= {"addDeviceService": ADD, "deleteDeviceService": DELETE}
        row["tsl"] = _build_tsl(
            row.pop("inputs"), row.pop("services", ()), row.pop("properties", ())
        )
    icon = f"/public/{integration}.svg"
    return msgspec.convert({"id": integration, "icon": icon, **row}, Manifest)


def _build_tsl(
    inputs: Iterable[str | ManifestPart],
    services: Iterable[ManifestPart],
    properties: Iterable[str | ManifestPart],
) -> ManifestPart:
    added = list(map(_build_input, _resolve_shared_parts(inputs)))
    add: ManifestPart = {"id": ADD, "name": "Add device", "inputs": added}
    delete: ManifestPart = {"id": DELETE, "name": "Delete device"}
    return {
        "version": "v1.0",
        "properties": list(map(_build_property, _resolve_shared_parts(properties))),
        "events": [],
        "services": list(map(_build_service, (add, delete, *services))),
    }


def _resolve_shared_parts(parts: Iterable[str | ManifestPart]) -> Iterator[ManifestPart]:
    """Yield the parts of a manifest; a text among them names parts that manifests share."""
    for part in parts:
        yield from _MANIFEST_DESCRIPTIONS["shared"][part] if isinstance(part, str) else (part,)


def _build_service(part: ManifestPart) -> ManifestPart:
    return {
        "id": part["id"],
        "name": part["name"],
        "description": part.get("description", ""),
        "callType": "SYNC",
        "inputs": part.get("inputs", []),
        "outputs": [],
    }


def _build_input(part: ManifestPart) -> ManifestPart:
    text = {"dataType": "STRING", "encoding": "UTF8", "parentId": ADD}
    return {
        "id": f"{ADD}.{part['id']}",
        "name": part["name"],
        "description": part["description"],
        "dataSpec": part.get("spec") or text | {"validator": part["validator"]},
    }


def _build_property(part: ManifestPart) -> ManifestPart:
    bound = {"validator": part["validator"]} if "validator" in part else {}
    return {
        "id": part["id"],
        "propertyKey": part["id"],
        "name": part["name"],
        "description": part["description"],
        "accessMode": part["access"],
        "dataSpec": part.get("spec") or {"dataType": "STRING"} | bound,
    }
