"""Lookup of the valid credentials of NATS users.

A short hash identifies each credential.
"""

import hashlib
from dataclasses import dataclass

from libs.common.bus import RpcClient
from libs.common.bus.accounts import APPLICATION_PREFIX
from libs.common.contracts.integrations import INTEGRATION_USER_PREFIX
from libs.common.contracts.mqtt import CLIENT_USER_PREFIX as FLOWS_PREFIX
from libs.common.contracts.mqtt import MQTT_LOGIN, MqttLoggedIn, MqttLogin
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.device_credentials import DeviceCredentialStore
from services.auth.integration_logins import IntegrationLoginStore


@dataclass(frozen=True)
class MqttLoginClient:
    """Client of `workflow`, which owns the credentials of MQTT clients."""

    rpc: RpcClient

    async def login(self, access_key: str, secret: str | None = None) -> MqttLoggedIn:
        """Return tenant and credential of an access key; verify `secret` unless None.

        Both are empty if the access key is unknown or the secret is wrong.
        """
        return await self.rpc.call(MQTT_LOGIN, MqttLogin(access_key, secret), MqttLoggedIn)


CREDENTIAL_HEX_DIGITS = 16


@dataclass(frozen=True)
class BusCredentialLookup:
    """Lookup of the currently valid credentials, in MongoDB and `workflow`."""

    devices: DeviceCredentialStore
    applications: ApplicationStore
    integrations: IntegrationLoginStore
    clients: MqttLoginClient

    async def list_credentials(self, user: str) -> frozenset[str]:
        """Return the credentials of a NATS user; a device has a key and certificates."""
        if user.startswith(APPLICATION_PREFIX):
            client_id = user.removeprefix(APPLICATION_PREFIX)
            application = await self.applications.find_by_client_id(client_id)
            if application is None or not application.events:
                return frozenset()
            return frozenset({derive_application_credential(application)})
        if user.startswith(INTEGRATION_USER_PREFIX):
            stored = await self.integrations.find_secret_hash(
                user.removeprefix(INTEGRATION_USER_PREFIX)
            )
            return frozenset() if stored is None else frozenset({derive_credential(stored)})
        if user.startswith(FLOWS_PREFIX):
            login = await self.clients.login(user.removeprefix(FLOWS_PREFIX))
            return frozenset({derive_credential(login.credential)}) if login.tenant else frozenset()
        device = await self.devices.get(user)
        if device is None:
            return frozenset()
        return frozenset(map(derive_credential, (device.key_hash, *device.certificates)))


def derive_credential(secret_hash: str) -> str:
    """Return the short hash that identifies a secret hash or certificate serial."""
    return hashlib.sha256(secret_hash.encode()).hexdigest()[:CREDENTIAL_HEX_DIGITS]


def derive_application_credential(application: StoredApplication) -> str:
    """Return the credential of an application, which changes with its generation."""
    return derive_credential(f"{application.secret_hash}:{application.generation}")
