"""Authorizes NATS logins of devices, applications, integrations and MQTT clients."""

import logging
import re
from dataclasses import dataclass
from uuid import UUID

from libs.common.contracts.auth import Connection, LoginProtocol
from libs.common.contracts.integrations import INTEGRATION_USER_PREFIX
from libs.common.contracts.mqtt import mqtt_client_user
from libs.common.errors import TooManyRequests
from libs.common.identity import Caller
from libs.common.identity.header import CertificatePassVerifier
from libs.common.limits.tenants import LimitsCache, count_rejection
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.bus_credentials import (
    MqttLoginClient,
    derive_application_credential,
    derive_credential,
)
from services.auth.callout.admission_registry import AdmissionRegistry
from services.auth.callout.permissions import (
    MAX_CLIENTS_PER_ACCESS_KEY,
    Admission,
    InvalidIdentityError,
    application_permissions,
    device_permissions,
    integration_permissions,
    mqtt_client_permissions,
)
from services.auth.client_secrets import matches_secret_hash
from services.auth.connections import UserConnections
from services.auth.device_credentials import DeviceCredentialService
from services.auth.integration_logins import IntegrationLoginStore
from services.auth.login_records import LoginMethod, RejectedLoginRecorder, count_login

log = logging.getLogger(__name__)

match_access_key = re.compile(r"[A-Za-z0-9_-]{1,64}@[A-Za-z0-9_-]{1,64}").fullmatch
RETRY_SECONDS = 1.5
"""Seconds after which a user with too many connections may retry."""


@dataclass(frozen=True)
class LoginAuthorizer:
    """Authorizes logins from the current state, so revocation is immediate."""

    devices: DeviceCredentialService
    applications: ApplicationStore
    integrations: IntegrationLoginStore
    registry: AdmissionRegistry
    connections: UserConnections
    limits: LimitsCache
    rejected_logins: RejectedLoginRecorder
    passes: CertificatePassVerifier
    clients: MqttLoginClient

    async def admit(
        self,
        user: str,
        password: str,
        address: str,
        connection: Connection,
        mqtt_id: str | None = None,
    ) -> Admission | None:
        """Return the admission of a valid login, else None.

        A device logs in with its SN and key. For a device with a certificate, the gateway checks
        the certificate and logs in with the SN and a signed pass in place of the key. An
        application uses its client id and secret, and an integration uses `integration.{id}` and
        its secret. An MQTT client of a tenant uses an access key and secret. A user name in the
        form of a UUID belongs to an application if that application exists; any other name is an
        SN.

        The spelling of an SN must be exact. Topics and subjects are case-sensitive, so a device
        with another spelling could neither send nor receive anything.

        `mqtt_id` is the MQTT client id, None over plain NATS. Only devices and MQTT clients of
        tenants may connect over MQTT, and each client id has one owner. An application must connect
        from an `address` that its allow-list includes.

        Raises `TooManyRequests` beyond the limit `eachConnections` or `USER_LOGINS_PER_SECOND`,
        because each login takes processor time of nats-server and of the connection watch.
        """
        if not user or not password:
            return None
        method, admission = await self._verify_credentials(user, password, address, mqtt_id)
        result = None
        if admission is not None:
            result = await self.registry.admit(admission, connection, mqtt_id)
        count_login(method, ok=result is not None)
        if admission is None or result is None:
            return None
        if result.wait:
            raise TooManyRequests("too many logins", retry_after=result.wait)
        maximum = self.limits.get(admission.tenant).each_connections
        if admission.shared:
            maximum = max(maximum, MAX_CLIENTS_PER_ACCESS_KEY)
        if not await self.connections.has_room(admission.name, connection, result.kept, maximum):
            count_rejection("eachConnections", admission.tenant)
            text = f"more than {maximum} eachConnections at once"
            raise TooManyRequests(text, retry_after=RETRY_SECONDS)
        return admission

    async def _verify_credentials(
        self, user: str, password: str, address: str, mqtt_id: str | None
    ) -> tuple[LoginMethod, Admission | None]:
        if mqtt_id is None:
            if user.startswith(INTEGRATION_USER_PREFIX):
                return "nats_integration", await self._check_integration(user, password)
            application = (
                await self.applications.find_by_client_id(user) if _is_uuid(user) else None
            )
            if application is not None:
                return "nats_application", self._check_application(application, password, address)
        elif match_access_key(user):
            client = await self._check_mqtt_client(user, password)
            if client is not None:
                return "mqtt_client", client
        return "nats_device", await self._check_device(user, password, mqtt=mqtt_id is not None)

    def _check_application(
        self, application: StoredApplication, secret: str, address: str
    ) -> Admission | None:
        if not matches_secret_hash(secret, application.secret_hash) or not application.events:
            return None
        if not application.may_call_from(address):
            self.rejected_logins.enqueue(Caller(application.principal, address), "address")
            return None
        permissions = application_permissions(application.client_id, application.tenant)
        return Admission(
            application.nats_user,
            permissions,
            derive_application_credential(application),
            application.tenant,
        )

    async def _check_integration(self, user: str, secret: str) -> Admission | None:
        integration = user.removeprefix(INTEGRATION_USER_PREFIX)
        stored = await self.integrations.find_secret_hash(integration)
        if not matches_secret_hash(secret, stored) or stored is None:
            return None
        return Admission(user, integration_permissions(integration), derive_credential(stored))

    async def _check_mqtt_client(self, access_key: str, secret: str) -> Admission | None:
        login = await self.clients.login(access_key, secret)
        if not login.tenant:
            return None
        return Admission(
            mqtt_client_user(access_key),
            mqtt_client_permissions(access_key),
            derive_credential(login.credential),
            login.tenant,
            shared=True,
        )

    async def _check_device(self, sn: str, key: str, *, mqtt: bool) -> Admission | None:
        certificate = self.passes.verify(key)
        protocol: LoginProtocol = "MQTT" if mqtt else "NATS"
        if certificate is None:
            credentials, serial = await self.devices.log_in(sn, key, protocol), ""
        else:
            credentials, serial = (
                await self.devices.log_in_with_certificate(certificate, protocol),
                certificate.serial,
            )
        if credentials is None:
            return None
        if credentials.sn != sn:
            log.info(
                "callout: rejected SN %s, because its exact spelling is %s", sn, credentials.sn
            )
            self.devices.rejected_logins.record(credentials, "SN", protocol)
            return None
        try:
            permissions = device_permissions(credentials.sn, mqtt=mqtt)
        except InvalidIdentityError:
            return None
        return Admission(
            credentials.sn,
            permissions,
            derive_credential(serial or credentials.key_hash),
            credentials.tenant,
        )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False
