"""`thingway product import`: import of a product or a thing specification (TSL)."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import read_file
from deploy.platform.openapi import OpenApi

_PRODUCT_FIELDS = ("name", "snPrefixes", "deviceType", "historyDays", "tsl")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A platform and the credentials of an application."""

    base_url: str
    client_id: str
    client_secret: str
    ca_file: str = ""

    @classmethod
    def from_directory(cls, directory: Path) -> "Target":
        """Return the platform with data in `directory`, and its first application."""
        state, addresses = states.load_addressed(directory)
        if state.application is None:
            raise CommandError(f"the first start with data in {directory} is not complete")
        application = state.application
        return cls(
            base_url=addresses.base_url,
            client_id=application.client_id,
            client_secret=application.client_secret,
            ca_file=addresses.ca_file,
        )

    def connect(self) -> OpenApi:
        """Return an API client of this application."""
        return OpenApi(self.base_url, self.client_id, self.client_secret, self.ca_file)


async def import_file(given: Namespace) -> None:
    """Import a product; raise `ApiRefused` with all faults that the platform finds."""
    target = read_target(given)
    chosen, product = read_product(given.file, given.model)
    async with target.connect() as api:
        await api.put_product(chosen, product)
    print(f"product {chosen} is imported")


def read_target(given: Namespace) -> Target:
    """Return the platform that the options name, or that of the data directory."""
    remote = (given.url, given.client_id, given.client_secret)
    if not any(remote):
        return Target.from_directory(given.data)
    if not all(remote):
        raise CommandError("--url, --client-id and --client-secret must be given together")
    return Target(base_url=given.url, client_id=given.client_id, client_secret=given.client_secret)


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
