"""`thingway product import` and `thingway product import-template`."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from deploy.platform import state as states
from deploy.platform.errors import CommandError, InputRejected
from deploy.platform.files import read_file
from deploy.platform.openapi import ApiRejected, OpenApiClient
from services.device.registry.products.template_library import (
    MAX_FILE_BYTES,
    TEMPLATE,
    Archive,
    ArchiveInvalid,
    find_templates_by_folder,
)
from services.device.registry.products.template_parser import (
    Template,
    TemplateInvalid,
    read_template,
)
from services.device.registry.products.templates import (
    codec_from_template,
    codec_warning,
    product_from_template,
)
from services.device.things.product_model import Product, ProductCodec

_PRODUCT_FIELDS = ("name", "snPrefixes", "deviceType", "historyDays", "tsl")


def open_platform(directory: Path) -> OpenApiClient:
    """Return a client of a data directory's platform, as its first application."""
    state, addresses = states.load_with_addresses(directory)
    if state.application is None:
        raise CommandError(f"the first start with data in {directory} is not complete")
    login = (state.application.client_id, state.application.client_secret)
    return OpenApiClient(addresses.base_url, *login, addresses.ca_file)


async def import_file(options: Namespace) -> None:
    """Import a product; raise `ApiRejected` with all faults that the platform finds."""
    target = open_target_platform(options)
    chosen, product = read_product(options.file, options.model)
    async with target as api:
        await api.put_product(chosen, product)
    print(f"product {chosen} is imported")


def open_target_platform(options: Namespace) -> OpenApiClient:
    """Return a client of the platform that the options or the data directory name."""
    remote = (options.url, options.client_id, options.client_secret)
    if not any(remote):
        return open_platform(options.data)
    if not all(remote):
        raise CommandError("--url, --client-id and --client-secret must be given together")
    return OpenApiClient(*remote)


def read_product(file: Path, model: str | None) -> tuple[str, dict[str, Any]]:
    """Return the model and the product body in a file.

    The file is a product or a TSL document. The model is `model`, by default the model in the
    product, else the file's stem in capitals. Raises `CommandError` for any other file.
    """
    try:
        content = json.loads(read_file(file))
    except ValueError as error:
        raise CommandError(f"cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise CommandError(f"{file} does not contain a JSON object")
    if "tsl" in content:
        chosen = model or content.get("model") or file.stem.upper()
        return chosen, {key: content[key] for key in _PRODUCT_FIELDS if key in content}
    if "properties" not in content and "services" not in content and "events" not in content:
        raise CommandError(f"{file} is neither a product (`tsl`) nor a TSL document (`properties`)")
    chosen = model or file.stem.upper()
    return chosen, {"name": chosen, "snPrefixes": [], "deviceType": "COMMON", "tsl": content}


_NOT_FOUND = 404


class TemplateFolder(Mapping[str, bytes]):
    """The files below a folder by relative path, read on access."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file below the folder; reject large files."""
        file = (self._root / path).resolve()
        if not self._contains(file):
            raise KeyError(path)
        if file.stat().st_size > MAX_FILE_BYTES:
            raise CommandError(f"{file} has more than {MAX_FILE_BYTES} bytes")
        return file.read_bytes()

    def __iter__(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for file in self._root.rglob("*"):
            if self._contains(file.resolve()):
                yield str(file.relative_to(self._root))

    def __len__(self) -> int:
        """Return the number of files."""
        return sum(1 for _ in self)

    def _contains(self, file: Path) -> bool:
        return file.is_relative_to(self._root) and file.is_file()


async def import_template(options: Namespace) -> None:
    """Create the product of a template; raise `InputRejected` with all faults."""
    target = open_target_platform(options)
    name, template = load_template(options.template)
    model = options.model or name.upper()
    async with target as api:
        product = product_from_template(template, model, await _find_product(api, model))
        await api.put_product(model, msgspec.to_builtins(product))
        path = f"/device/openapi/v1/products/{model}/codec"
        saved = await api.request("PUT", path, msgspec.to_builtins(codec_from_template(template)))
    print(f"product {model} is imported with its codec")
    if warning := codec_warning(msgspec.convert(saved, ProductCodec)):
        print(f"thingway: warning: {warning}", file=sys.stderr)


def load_template(path: Path) -> tuple[str, Template]:
    """Return name and content of a template, from its folder or from a ZIP.

    Raises `CommandError` if it cannot be read, `InputRejected` if the template has faults.
    """
    try:
        if path.is_dir():
            name = path.resolve().name
            return name, read_template(TemplateFolder(path.resolve().parent), f"{name}/{TEMPLATE}")
        archive = Archive(path.read_bytes())
        templates = find_templates_by_folder(archive, path.stem)
        if len(templates) != 1:
            names = ", ".join(each.model for each in templates[:5]) or "none"
            raise CommandError(
                f"{path} must contain exactly one {TEMPLATE}. It contains {len(templates)}: {names}"
            )
        return templates[0].model, templates[0].read(archive)
    except TemplateInvalid as error:
        raise InputRejected(
            str(error), [f"{fault.path}: {fault.reason}" for fault in error.faults]
        ) from error
    except (OSError, ArchiveInvalid) as error:
        raise CommandError(f"cannot read {path}: {error}") from error


async def _find_product(api: OpenApiClient, model: str) -> Product | None:
    """Return the product of the model; None if it does not exist."""
    try:
        existing = await api.request("GET", f"/device/openapi/v1/products/{model}")
    except ApiRejected as error:
        if error.status != _NOT_FOUND:
            raise
        return None
    return msgspec.convert(existing, Product)
