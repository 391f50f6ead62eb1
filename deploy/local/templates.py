"""`thingway product import-template`: a public device template becomes a product with a codec."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from deploy.local.products import target_of
from deploy.platform.errors import CommandError, Refused
from deploy.platform.openapi import ApiRefused, OpenApi
from services.device.registry.products.template_library import (
    LARGEST,
    TEMPLATE,
    Archive,
    ArchiveInvalid,
    loose,
)
from services.device.registry.products.template_parser import (
    Template,
    TemplateInvalid,
    read_template,
)
from services.device.registry.products.templates import codec_of, product_of, warning_of
from services.device.things.product_model import Product, ProductCodec

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
        product = product_of(template, model, await _known(api, model))
        await api.put_product(model, msgspec.to_builtins(product))
        path = f"/device/openapi/v1/products/{model}/codec"
        kept = await api.request("PUT", path, msgspec.to_builtins(codec_of(template)))
    print(f"product {model} is imported with its codec")
    if warning := warning_of(msgspec.convert(kept, ProductCodec)):
        print(f"thingway: warning: {warning}", file=sys.stderr)


def read(place: Path) -> tuple[str, Template]:
    """A template's name and content, of its folder or of a ZIP with one template.

    Raises `CommandError` for what cannot be read, `Refused` for a template with faults.
    """
    try:
        if place.is_dir():
            name = place.resolve().name
            return name, read_template(Folder(place.resolve().parent), f"{name}/{TEMPLATE}")
        archive = Archive(place.read_bytes())
        found = loose(archive, place.stem)
        if len(found) != 1:
            names = ", ".join(one.model for one in found[:5]) or "none"
            raise CommandError(f"{place} must have one {TEMPLATE}, it has {len(found)}: {names}")
        return found[0].model, found[0].read(archive)
    except TemplateInvalid as error:
        raise Refused(str(error), [f"{one.path}: {one.reason}" for one in error.faults]) from error
    except (OSError, ArchiveInvalid) as error:
        raise CommandError(f"cannot read {place}: {error}") from error


async def _known(api: OpenApi, model: str) -> Product | None:
    """The product of the model, when there is one."""
    try:
        there = await api.request("GET", f"/device/openapi/v1/products/{model}")
    except ApiRefused as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return msgspec.convert(there, Product)
