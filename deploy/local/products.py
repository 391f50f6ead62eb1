"""`thingway product import`: put a product or a bare TSL document on the platform."""

import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import read_given
from deploy.platform.openapi import OpenApi

_PRODUCT_FIELDS = ("name", "snPrefixes", "deviceType", "historyDays", "tsl")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The platform to talk to, and as whom."""

    base_url: str
    client_id: str
    client_secret: str
    ca_file: str = ""

    @classmethod
    def of_directory(cls, directory: Path) -> "Target":
        """The platform whose data are in `directory`, as its first application."""
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
        """A client of the API as this application."""
        return OpenApi(self.base_url, self.client_id, self.client_secret, self.ca_file)


async def import_file(given: Namespace) -> None:
    """Import a file; raises `ApiRefused` with every fault the platform finds in it."""
    target = target_of(given)
    chosen, product = read(given.file, given.model)
    async with target.connect() as api:
        await api.put_product(chosen, product)
    print(f"product {chosen} is imported")


def target_of(given: Namespace) -> Target:
    """The platform that a command names, else the one of its data directory."""
    remote = (given.url, given.client_id, given.client_secret)
    if not any(remote):
        return Target.of_directory(given.data)
    if not all(remote):
        raise CommandError("--url, --client-id and --client-secret belong together")
    return Target(base_url=given.url, client_id=given.client_id, client_secret=given.client_secret)


def read(file: Path, model: str | None) -> tuple[str, dict[str, Any]]:
    """The model and the product body of a file: a whole product, or a bare TSL document.

    The model is `model`, else what the product says, else the file's stem in capitals.
    Raises `CommandError` for a file that is neither.
    """
    try:
        content = json.loads(read_given(file))
    except ValueError as error:
        raise CommandError(f"cannot read {file}: {error}") from error
    if not isinstance(content, dict):
        raise CommandError(f"{file} holds no JSON object")
    if "tsl" in content:
        chosen = model or content.get("model") or file.stem.upper()
        return chosen, {key: content[key] for key in _PRODUCT_FIELDS if key in content}
    if "properties" not in content and "services" not in content and "events" not in content:
        raise CommandError(f"{file} is neither a product (tsl) nor a TSL document (properties)")
    chosen = model or file.stem.upper()
    return chosen, {"name": chosen, "snPrefixes": [], "deviceType": "COMMON", "tsl": content}
