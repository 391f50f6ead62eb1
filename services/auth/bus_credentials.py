"""Which credentials of users of the bus are valid; each is called by a short hash."""

import hashlib
from dataclasses import dataclass

from libs.common.bus import RpcClient
from libs.common.bus.accounts import APPLICATION_PREFIX
from libs.common.contracts.integrations import LOGIN_PREFIX
from libs.common.contracts.mqtt import LOGIN_PREFIX as FLOWS_PREFIX
from libs.common.contracts.mqtt import MQTT_LOGIN, MqttLoggedIn, MqttLogin
from services.auth.applications.model import StoredApplication
from services.auth.applications.store import ApplicationStore
from services.auth.device_credentials import DeviceStore
from services.auth.integration_logins import IntegrationLoginStore


@dataclass(frozen=True)
class MqttClients:
    """Asks `workflow`."""

    rpc: RpcClient

    async def login(self, access_key: str, secret: str | None = None) -> MqttLoggedIn:
        """Who comes in with an access key and its secret; raises what `workflow` answers."""
        return await self.rpc.call(MQTT_LOGIN, MqttLogin(access_key, secret), MqttLoggedIn)


LENGTH = 16


@dataclass(frozen=True)
class BusCredentials:
    """The credentials that are good now, as MongoDB and `workflow` have them."""

    devices: DeviceStore
    applications: ApplicationStore
    integrations: IntegrationLoginStore
    clients: MqttClients

    async def credentials_of(self, user: str) -> frozenset[str]:
        """The credentials of a user of the bus: one, and of a device its certificates."""
        if user.startswith(APPLICATION_PREFIX):
            client_id = user.removeprefix(APPLICATION_PREFIX)
            application = await self.applications.by_client_id(client_id)
            if application is None or not application.events:
                return frozenset()
            return frozenset({application_credential(application)})
        if user.startswith(LOGIN_PREFIX):
            stored = await self.integrations.secret_hash(user.removeprefix(LOGIN_PREFIX))
            return frozenset() if stored is None else frozenset({credential(stored)})
        if user.startswith(FLOWS_PREFIX):
            found = await self.clients.login(user.removeprefix(FLOWS_PREFIX))
            return frozenset({credential(found.credential)}) if found.tenant else frozenset()
        device = await self.devices.get(user)
        if device is None:
            return frozenset()
        return frozenset(map(credential, (device.key_hash, *device.certificates)))


def credential(secret_hash: str) -> str:
    """The credential that the hash of a secret, or the number of a certificate, stands for."""
    return hashlib.sha256(secret_hash.encode()).hexdigest()[:LENGTH]


def application_credential(application: StoredApplication) -> str:
    """An application's: another one with each generation, which its allow-list changes too."""
    return credential(f"{application.secret_hash}:{application.generation}")
