"""What the credential of a connection is called: a short hash that tells it from others."""

import hashlib
from typing import Protocol

from libs.common.bus.accounts import APPLICATION_PREFIX
from libs.common.contracts.integrations import LOGIN_PREFIX
from libs.common.identity.device_keys import DeviceKeyCopy
from services.auth.applications.schemas import StoredApplication

LENGTH = 16


class Devices(Protocol):
    """Device credentials."""

    async def get(self, sn: str) -> DeviceKeyCopy | None:
        """The credentials of an SN."""


class Applications(Protocol):
    """Applications."""

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""


class Integrations(Protocol):
    """Logins of integrations."""

    async def secret_hash(self, integration: str) -> str | None:
        """The hash of its secret; None without a login."""


class Credentials:
    """The credentials that are good now, as MongoDB has them."""

    def __init__(
        self, devices: Devices, applications: Applications, integrations: Integrations
    ) -> None:
        self._devices = devices
        self._applications = applications
        self._integrations = integrations

    async def of(self, user: str) -> str | None:
        """The credential of a user of the bus; None when it has none."""
        if user.startswith(APPLICATION_PREFIX):
            client_id = user.removeprefix(APPLICATION_PREFIX)
            application = await self._applications.by_client_id(client_id)
            usable = application is not None and application.events
            return application_credential(application) if application and usable else None
        if user.startswith(LOGIN_PREFIX):
            stored = await self._integrations.secret_hash(user.removeprefix(LOGIN_PREFIX))
            return None if stored is None else credential(stored)
        device = await self._devices.get(user)
        return None if device is None else credential(device.key_hash)


def credential(secret_hash: str) -> str:
    """The credential that the hash of a secret stands for."""
    return hashlib.sha256(secret_hash.encode()).hexdigest()[:LENGTH]


def application_credential(application: StoredApplication) -> str:
    """An application's: another one with each generation, which its allow-list changes too."""
    return credential(f"{application.secret_hash}:{application.generation}")
