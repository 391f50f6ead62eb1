"""What the logic of devices needs of others, to be given or faked."""

from typing import Any, Protocol

from libs.common.tsl import TslDocument
from services.device.devices.schemas import Credentials
from services.device.products.schemas import Product
from services.device.things.model import Device


class Ids(Protocol):
    """Gives device ids."""

    async def take(self) -> int:
        """An id that nobody else gets."""


class Catalogue(Protocol):
    """What devices need to know of products."""

    async def choose(self, tenant: str, model: str | None, serial: str) -> Product:
        """The product of a new device."""

    async def versions(self, tenant: str, model: str) -> list[str]:
        """The TSL versions of a product."""

    async def tsl(self, tenant: str, model: str, version: str) -> TslDocument:
        """The document of one version."""


class Provisioner(Protocol):
    """Sends a first configuration to a device that was added with `autoProvision`."""

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        """Raise `InvalidInput` when the device's TSL does not accept `config`."""

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        """Begin to configure a device that has just been added."""


class CredentialsGateway(Protocol):
    """Keeps the keys of devices."""

    async def issue(self, sn: str, device_id: int, tenant: str) -> Credentials:
        """Make a new key; the old one dies."""

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """End the key of this device."""
