"""Decides who comes in to the bus: devices by their key, applications, integrations by secret."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import msgspec

from libs.common.contracts.integrations import LOGIN_PREFIX
from libs.common.errors import TooManyRequests
from libs.common.identity import Caller
from libs.common.identity.device_keys import DeviceKeyCopy
from services.auth.applications.schemas import StoredApplication
from services.auth.callout.permissions import (
    InvalidIdentityError,
    Permissions,
    application_permissions,
    device_permissions,
    integration_permissions,
)
from services.auth.connections.credentials import application_credential, credential
from services.auth.metrics import count_login
from services.auth.secret_hash import secret_matches

LOG_IN_RATE = 1.0
"""Log-ins per second of one device, application or integration."""
LOG_IN_BURST = 60
"""Log-ins that it may make at once."""


class Admission(msgspec.Struct, frozen=True):
    """A connection that may come in, by the name that others see, and what it may do."""

    name: str
    permissions: Permissions
    credential: str
    """Which key or secret it came with."""
    tenant: str = ""
    """Whose it is; empty for an integration, which serves all."""


class Devices(Protocol):
    """Checks device keys."""

    async def log_in(self, sn: str, key: str) -> DeviceKeyCopy | None:
        """The credentials that `key` opens."""


class ClientIds(Protocol):
    """Knows whose an MQTT client id is."""

    async def claim(self, sn: str, client_id: str) -> bool:
        """Tell whether the device `sn` may come with `client_id`."""


class LogIns(Protocol):
    """Bounds log-ins (`libs.common.limits.TokenBuckets`)."""

    async def take(self, key: str, *, rate: float, burst: int) -> tuple[int, float]:
        """Take a permit; return how many were granted, and seconds until the next."""


class Applications(Protocol):
    """Finds applications."""

    async def by_client_id(self, client_id: str) -> StoredApplication | None:
        """The application that logs in with `client_id`."""


class Integrations(Protocol):
    """Finds the logins of external integrations."""

    async def secret_hash(self, integration: str) -> str | None:
        """The hash of its secret; None without a login."""


class Doorkeeper:
    """Admits connections; reads the state anew for each, so that revocation is immediate.

    `refused` is told of applications that come from where they may not.
    """

    def __init__(
        self,
        devices: Devices,
        applications: Applications,
        integrations: Integrations,
        client_ids: ClientIds,
        log_ins: LogIns,
        refused: Callable[[Caller, str], None],
    ) -> None:
        self._devices = devices
        self._applications = applications
        self._integrations = integrations
        self._client_ids = client_ids
        self._log_ins = log_ins
        self._refused = refused

    async def admit(
        self, user: str, password: str, address: str, mqtt_id: str | None = None
    ) -> Admission | None:
        """Admit a device (SN in any case, key), an application (client id, secret) or an
        integration (`integration.` and its id, secret).

        `mqtt_id` is the MQTT client id, None over plain NATS; over MQTT only devices come in, each
        with an id that is no other's. Nobody comes more often than `LOG_IN_RATE`: each log-in makes
        nats-server and the watch of connections work.

        An application comes in only from an `address` that it may call from. A user name in
        the form of a UUID is an application's when there is such an application; anything
        else is an SN. Raises `TooManyRequests`.
        """
        admission = await self._known(user, password, address, mqtt_id)
        if admission is None:
            return None
        granted, wait = await self._log_ins.take(
            f"log-in:{admission.name.upper()}", rate=LOG_IN_RATE, burst=LOG_IN_BURST
        )
        if not granted:
            raise TooManyRequests("too many log-ins", retry_after=wait)
        return admission

    async def _known(
        self, user: str, password: str, address: str, mqtt_id: str | None
    ) -> Admission | None:
        if not user or not password:
            return None
        if mqtt_id is not None:
            return await self._device(user, password, mqtt_id)
        if user.startswith(LOGIN_PREFIX):
            return await self._integration(user, password)
        if _is_uuid(user):
            application = await self._applications.by_client_id(user)
            if application is not None:
                return self._application(application, password, address)
        return await self._device(user, password, None)

    def _application(
        self, application: StoredApplication, secret: str, address: str
    ) -> Admission | None:
        allowed = secret_matches(secret, application.secret_hash) and application.events
        if allowed and not application.may_call_from(address):
            self._refused(Caller(application.principal, address), "address")
            allowed = False
        count_login("nats_application", ok=allowed)
        if not allowed:
            return None
        permissions = application_permissions(application.client_id, application.tenant)
        return Admission(
            application.user, permissions, application_credential(application), application.tenant
        )

    async def _integration(self, user: str, secret: str) -> Admission | None:
        integration = user.removeprefix(LOGIN_PREFIX)
        stored = await self._integrations.secret_hash(integration)
        allowed = secret_matches(secret, stored)
        count_login("nats_integration", ok=allowed)
        if stored is None or not allowed:
            return None
        return Admission(user, integration_permissions(integration), credential(stored))

    async def _device(self, sn: str, key: str, mqtt_id: str | None) -> Admission | None:
        found = await self._devices.log_in(sn, key)
        admission = None
        if found is not None and (
            mqtt_id is None or await self._client_ids.claim(found.sn, mqtt_id)
        ):
            try:
                permissions = device_permissions(found.sn, mqtt=mqtt_id is not None)
                admission = Admission(
                    found.sn, permissions, credential(found.key_hash), found.tenant
                )
            except InvalidIdentityError:
                admission = None
        count_login("nats_device", ok=admission is not None)
        return admission


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
