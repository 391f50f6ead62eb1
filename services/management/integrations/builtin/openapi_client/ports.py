"""What `openapi-client` needs of others, to be given or faked."""

from typing import Any, Literal, Protocol

from libs.common.contracts.integrations import DeviceRef, NewDevice, OwnValues
from services.management.integrations.builtin.openapi_client.store import (
    Carried,
    Link,
    Secret,
)


class Things(Protocol):
    """What the platform is told and asked."""

    async def put_device(self, tenant: str, name: str, device: NewDevice) -> DeviceRef:
        """Bring a device in."""

    async def tsl(self, tenant: str, identifier: str) -> dict[str, Any]:
        """The TSL document of a device; raises `NotFound`."""

    async def report(
        self,
        tenant: str,
        identifier: str,
        properties: dict[str, Any],
        ts: int | None = None,
        *,
        report_id: str | None = None,
    ) -> None:
        """Report properties of a device."""

    async def reply(
        self,
        tenant: str,
        identifier: str,
        command_id: int | str,
        status: Literal["SUCCESS", "FAILED"],
        *,
        outputs: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Tell what became of a command."""

    async def own_report(self, tenant: str, properties: dict[str, Any]) -> None:
        """Set properties of the integration itself."""

    async def own_values(self, tenant: str) -> OwnValues:
        """The latest values of the integration itself."""


class Links(Protocol):
    """Keeps which device is which."""

    async def link(self, tenant: str, identifier: str) -> Link | None:
        """The link of a device."""

    async def keep_link(self, tenant: str, identifier: str, link: Link) -> None:
        """Write the link of a device."""

    async def leave(self, tenant: str, identifier: str) -> None:
        """Remember that a device is not wanted here."""


class Secrets(Protocol):
    """Keeps secrets."""

    async def secret(self, tenant: str) -> Secret | None:
        """The secret of a tenant."""

    async def keep_secret(self, tenant: str, secret: Secret) -> None:
        """Set the secret of a tenant."""


class CarriedCommands(Protocol):
    """Keeps commands on their way."""

    async def take(self, carried: Carried, expires_at: int) -> Carried:
        """Keep a command that came, or give the one that is kept already."""

    async def save(self, carried: Carried) -> None:
        """Write what has become of a command."""

    async def open(self) -> list[Carried]:
        """Commands without an end."""

    async def told(self, carried: Carried) -> None:
        """The platform knows the end of a command."""
