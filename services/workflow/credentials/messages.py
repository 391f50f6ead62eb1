"""Credentials on the bus: `auth` asks who may log in, and closes those who no longer may."""

import logging

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.auth import Done
from libs.common.contracts.mqtt import (
    CLOSE_MQTT_CLIENTS,
    CloseMqttClients,
    MqttLoggedIn,
    MqttLogin,
)
from libs.common.errors import ThingwayError
from services.workflow.credentials.service import TenantCredentials

log = logging.getLogger(__name__)


class MqttClients:
    """The connections of MQTT clients outside, which `auth` knows."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def close(self, access_key: str) -> None:
        """Close those whose credential has changed; while `auth` is away they stay."""
        try:
            await self._rpc.call(CLOSE_MQTT_CLIENTS, CloseMqttClients(access_key), Done)
        except ThingwayError as error:
            log.warning("connections of %s stay open: %s", access_key, error)


def offer_logins(rpc: RpcServer, credentials: TenantCredentials) -> None:
    """Answer `rpc.workflow.mqtt_login`."""

    async def login(wanted: MqttLogin) -> MqttLoggedIn:
        found = await credentials.mqtt_login(wanted.access_key, wanted.secret)
        return MqttLoggedIn() if found is None else MqttLoggedIn(*found)

    rpc.offer("mqtt_login", MqttLogin, login)
