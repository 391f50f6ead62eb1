"""`thingway product import-template`: a public device template becomes a product."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from deploy.local.products import read_target
from deploy.platform.errors import CommandError, Refused
from deploy.platform.openapi import ApiRefused, OpenApi
from services.device.registry.products.template_library import (
    LARGEST,
    TEMPLATE,
    Archive,
    ArchiveInvalid,
    find_templates,
)
from services.device.registry.products.template_parser import (
    Template,
    TemplateInvalid,
    read_template,
)
from services.device.registry.products.templates import codec_of, product_of, warning_of
from services.device.things.product_model import Product, ProductCodec

_NOT_FOUND = 404


class TemplateFolder(Mapping[str, bytes]):
    """The files below a folder by relative path, read on access."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file below the folder; reject large files."""
        file = (self._root / path).resolve()
        if not file.is_relative_to(self._root) or not file.is_file():
            raise KeyError(path)
        if file.stat().st_size > LARGEST:
            raise CommandError(f"{file} has more than {LARGEST} bytes")
        return file.read_bytes()

    def __iter__(self) -> Iterator[str]:
        """Yield all paths."""
        return (str(file.relative_to(self._root)) for file in self._root.rglob("*"))

    def __len__(self) -> int:
        """Return the number of files."""
        return sum(1 for _ in self)


async def import_template(given: Namespace) -> None:
    """Create the product of a template; raise `Refused` with all faults."""
    target = read_target(given)
    name, template = load_template(given.template)
    model = given.model or name.upper()
    async with target.connect() as api:
        product = product_of(template, model, await _find_product(api, model))
        await api.put_product(model, msgspec.to_builtins(product))
        path = f"/device/openapi/v1/products/{model}/codec"
        saved = await api.request("PUT", path, msgspec.to_builtins(codec_of(template)))
    print(f"product {model} is imported with its codec")
    if warning := warning_of(msgspec.convert(saved, ProductCodec)):
        print(f"thingway: warning: {warning}", file=sys.stderr)


def load_template(path: Path) -> tuple[str, Template]:
    """Return name and content of a template, from its folder or from a ZIP.

    Raises `CommandError` if it cannot be read, `Refused` if the template has faults.
    """
    try:
        if path.is_dir():
            name = path.resolve().name
            return name, read_template(TemplateFolder(path.resolve().parent), f"{name}/{TEMPLATE}")
        archive = Archive(path.read_bytes())
        found = find_templates(archive, path.stem)
        if len(found) != 1:
            names = ", ".join(each.model for each in found[:5]) or "none"
            raise CommandError(
                f"{path} must contain exactly one {TEMPLATE}. It contains {len(found)}: {names}"
            )
        return found[0].model, found[0].read(archive)
    except TemplateInvalid as error:
        raise Refused(
            str(error), [f"{fault.path}: {fault.reason}" for fault in error.faults]
        ) from error
    except (OSError, ArchiveInvalid) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


async def _find_product(api: OpenApi, model: str) -> Product | None:
    """Return the product of the model; None if it does not exist."""
    try:
        existing = await api.request("GET", f"/device/openapi/v1/products/{model}")
    except ApiRefused as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return msgspec.convert(existing, Product)
