"""Decides who comes in to the bus: devices by key or certificate, applications and integrations
by secret."""

import logging
import re
from dataclasses import dataclass
from uuid import UUID

from libs.common.contracts.auth import Connection, Way
from libs.common.contracts.integrations import LOGIN_PREFIX
from libs.common.contracts.mqtt import login_of
from libs.common.errors import TooManyRequests
from libs.common.identity import Caller
from libs.common.identity.header import PassVerifier
from libs.common.limits.tenants import KnownLimits, count_limited
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.bus_credentials import MqttClients, application_credential, credential
from services.auth.callout.admission_registry import AdmissionRegistry
from services.auth.callout.permissions import (
    MOST_CLIENTS,
    Admission,
    InvalidIdentityError,
    application_permissions,
    client_permissions,
    device_permissions,
    integration_permissions,
)
from services.auth.connections import UserConnections
from services.auth.device_credentials import DeviceService
from services.auth.integration_logins import IntegrationLoginStore
from services.auth.logins import Door, count_login, secret_matches
from services.auth.refused_logins import RefusedLoginRecorder

log = logging.getLogger(__name__)

ACCESS_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}@[A-Za-z0-9_-]{1,64}").fullmatch
LATER = 1.5
"""Seconds after which somebody with too many connections may try again."""


@dataclass(frozen=True)
class LoginAuthorizer:
    """Admits connections; reads the state anew for each, so that revocation is immediate."""

    devices: DeviceService
    applications: ApplicationStore
    integrations: IntegrationLoginStore
    registry: AdmissionRegistry
    connections: UserConnections
    limits: KnownLimits
    refused: RefusedLoginRecorder
    passes: PassVerifier
    clients: MqttClients

    async def admit(
        self,
        user: str,
        password: str,
        address: str,
        connection: Connection,
        mqtt_id: str | None = None,
    ) -> Admission | None:
        """Admit a device (SN as its record has it, key or the gateway's pass for its certificate),
        an application (client id, secret), an integration (`integration.` and its id, secret) or a
        client of a tenant (access key, secret).

        Topics and subjects tell capitals from small letters: a device that came in under another
        spelling of its SN would say and hear nothing, and not be told.

        `mqtt_id` is the MQTT client id, None over plain NATS; over MQTT only devices and such
        clients come in, each with an id that is no other's. Nobody comes more often than
        `LOG_IN_RATE`, as each log-in makes nats-server and the watch of connections work, and
        has more connections than its tenant's limit.

        An application comes in only from an `address` that it may call from. A user name in
        the form of a UUID is an application's when there is such an application; anything
        else is an SN. Raises `TooManyRequests`.
        """
        if not user or not password:
            return None
        door, admission = await self._known(user, password, address, mqtt_id)
        entry = None
        if admission is not None:
            entry = await self.registry.enter(admission, connection, mqtt_id)
        count_login(door, ok=entry is not None)
        if admission is None or entry is None:
            return None
        if entry.wait:
            raise TooManyRequests("too many log-ins", retry_after=entry.wait)
        most = self.limits.of(admission.tenant).each_connections
        if admission.shared:
            most = max(most, MOST_CLIENTS)
        if not await self.connections.has_room(admission.name, connection, entry.kept, most):
            count_limited("eachConnections", admission.tenant)
            raise TooManyRequests("too many connections", retry_after=LATER)
        return admission

    async def _known(
        self, user: str, password: str, address: str, mqtt_id: str | None
    ) -> tuple[Door, Admission | None]:
        if mqtt_id is None:
            if user.startswith(LOGIN_PREFIX):
                return "nats_integration", await self._integration(user, password)
            application = await self.applications.by_client_id(user) if _is_uuid(user) else None
            if application is not None:
                return "nats_application", self._application(application, password, address)
        elif ACCESS_KEY(user):
            client = await self._client(user, password)
            if client is not None:
                return "mqtt_client", client
        return "nats_device", await self._device(user, password, mqtt=mqtt_id is not None)

    def _application(
        self, application: StoredApplication, secret: str, address: str
    ) -> Admission | None:
        if not secret_matches(secret, application.secret_hash) or not application.events:
            return None
        if not application.may_call_from(address):
            self.refused.record(Caller(application.principal, address), "address")
            return None
        permissions = application_permissions(application.client_id, application.tenant)
        return Admission(
            application.user, permissions, application_credential(application), application.tenant
        )

    async def _integration(self, user: str, secret: str) -> Admission | None:
        integration = user.removeprefix(LOGIN_PREFIX)
        stored = await self.integrations.secret_hash(integration)
        if not secret_matches(secret, stored) or stored is None:
            return None
        return Admission(user, integration_permissions(integration), credential(stored))

    async def _client(self, access_key: str, secret: str) -> Admission | None:
        found = await self.clients.login(access_key, secret)
        if not found.tenant:
            return None
        return Admission(
            login_of(access_key),
            client_permissions(access_key),
            credential(found.credential),
            found.tenant,
            shared=True,
        )

    async def _device(self, sn: str, key: str, *, mqtt: bool) -> Admission | None:
        certificate = self.passes.verify(key)
        over: Way = "MQTT" if mqtt else "NATS"
        if certificate is None:
            found, shown = await self.devices.log_in(sn, key, over), ""
        else:
            found, shown = await self.devices.log_in_with(certificate, over), certificate.serial
        if found is None:
            return None
        if found.sn != sn:
            log.info("callout: the SN %s is written %s", sn, found.sn)
            self.devices.refused.note(found, "SN", over)
            return None
        try:
            permissions = device_permissions(found.sn, mqtt=mqtt)
        except InvalidIdentityError:
            return None
        return Admission(found.sn, permissions, credential(shown or found.key_hash), found.tenant)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
