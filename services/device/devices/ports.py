"""What the logic of devices needs of others, to be given or faked."""

from typing import Any, Protocol

from libs.common.tsl import TslDocument
from services.device.devices.schemas import Credentials
from services.device.devices.search import Query
from services.device.devices.serials import Holder
from services.device.products.schemas import Product

Device = dict[str, Any]
"""A document of `devices`; see `store`."""


class Devices(Protocol):
    """What the service needs of its store."""

    async def with_serial(self, key: str) -> tuple[Holder | None, Device | None]:
        """What holds an SN, and the device when it is one."""

    async def find(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """A device of the application."""

    async def search(self, query: Query) -> tuple[list[Device], int]:
        """A page and the number of all matches."""

    async def report_times(self, device_ids: list[int]) -> dict[int, int]:
        """Times of the newest reports, in ms."""

    async def insert(self, device: Device) -> None:
        """Write a new device; raises `SerialTaken`."""

    async def attach(self, device_id: int, changes: dict[str, Any]) -> Device | None:
        """Give a device without application to one."""

    async def update(
        self, tenant: str, application_id: int, device_id: int, changes: dict[str, Any]
    ) -> Device | None:
        """Change a device."""

    async def detach(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Take a device from its application."""

    async def delete(self, tenant: str, application_id: int, device_id: int) -> Device | None:
        """Delete a device."""


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
