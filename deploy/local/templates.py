"""`thingway product import-template`: a public device template becomes a product with a codec."""

import sys
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from deploy.local.products import target_of
from deploy.platform.errors import CommandError, Refused
from deploy.platform.openapi import ApiRefused, OpenApi
from libs.common.tsl import to_wire
from services.device.codecs.templates import Template, TemplateInvalid, read_template

TEMPLATE = "device-template.yaml"
SILENCE = 1440
"""Minutes without an uplink after which a new product's devices are OFFLINE: sensors sleep."""
LARGEST = 1024 * 1024
"""Bytes of a file of a template."""
_KEPT = (
    "name",
    "snPrefixes",
    "deviceType",
    "historyDays",
    "frameDays",
    "deviceOfflineTimeout",
    "locationProperty",
)
_NOT_FOUND = 404


class Folder(Mapping[str, bytes]):
    """The files below a folder by their paths, read when they are asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __getitem__(self, path: str) -> bytes:
        """The content of a file that lies below the folder and is not too large."""
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root) or not file.is_file():
            raise KeyError(path)
        if file.stat().st_size > LARGEST:
            raise CommandError(f"{file} has more than {LARGEST} bytes")
        return file.read_bytes()

    def __iter__(self) -> Iterator[str]:
        """Every path."""
        return (str(file.relative_to(self._root)) for file in self._root.rglob("*"))

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)


async def import_template(given: Namespace) -> None:
    """Make the product of a template; raises `Refused` with every fault."""
    target = target_of(given)
    name, template = read(given.template)
    model = given.model or name.upper()
    async with target.connect() as api:
        await api.put_product(model, await product_body(api, model, template))
        path = f"/device/openapi/v1/products/{model}/codec"
        kept = await api.request("PUT", path, _codec(template))
    print(f"product {model} is imported with its codec")
    if warning := warning_of(kept):
        print(f"thingway: warning: {warning}", file=sys.stderr)


def warning_of(codec: Mapping[str, Any]) -> str | None:
    """What is wrong with how a codec that is kept asks devices for what they remember."""
    history = codec.get("history") or {}
    if "fault" not in history:
        return None
    return f"devices are not asked for their history: {history['service']} {history['fault']}"


def read(place: Path) -> tuple[str, Template]:
    """A template's name and content, of its folder or of a ZIP with one template.

    Raises `CommandError` for what cannot be read, `Refused` for a template with faults.
    """
    files: Mapping[str, bytes]
    try:
        if place.is_dir():
            name = place.resolve().name
            files, path = Folder(place.resolve().parent), f"{name}/{TEMPLATE}"
        else:
            files, path = _of_zip(place)
            name = PurePosixPath(path).parent.name or place.stem
        return name, read_template(files, path)
    except TemplateInvalid as error:
        raise Refused(str(error), [f"{one.path}: {one.reason}" for one in error.faults]) from error
    except (OSError, zipfile.BadZipFile) as error:
        raise CommandError(f"cannot read {place}: {error}") from error


def _of_zip(place: Path) -> tuple[dict[str, bytes], str]:
    """The files of a ZIP by their paths from the folder above the template, and its own path."""
    with zipfile.ZipFile(place) as archive:
        members = [one for one in archive.infolist() if one.filename.endswith((".yaml", ".js"))]
        found = [one for one in members if PurePosixPath(one.filename).name == TEMPLATE]
        if len(found) != 1:
            names = ", ".join(one.filename for one in found[:5]) or "none"
            raise CommandError(f"{place} must have one {TEMPLATE}, it has {len(found)}: {names}")
        above = PurePosixPath(found[0].filename).parent.parent
        large = [one.filename for one in members if one.file_size > LARGEST]
        if large:
            raise CommandError(f"{place}: {large[0]} has more than {LARGEST} bytes")
        paths = {PurePosixPath(one.filename): one for one in members}
        below = {path: one for path, one in paths.items() if path.is_relative_to(above)}
        files = {str(path.relative_to(above)): archive.read(one) for path, one in below.items()}
        return files, str(PurePosixPath(found[0].filename).relative_to(above))


async def product_body(api: OpenApi, model: str, template: Template) -> dict[str, Any]:
    """The body of a product: one that is there keeps all but its TSL."""
    known: dict[str, Any] = {"name": model, "deviceOfflineTimeout": SILENCE}
    try:
        there = await api.request("GET", f"/device/openapi/v1/products/{model}")
        known = {name: there[name] for name in _KEPT if name in there}
    except ApiRefused as error:
        if error.status != _NOT_FOUND:
            raise
    return known | {"tsl": to_wire(template.document)}


def _codec(template: Template) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(template.codec)
    return body
