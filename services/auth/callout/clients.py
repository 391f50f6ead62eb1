"""MQTT clients of tenants that are no devices; `workflow` keeps what they log in with."""

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.auth import Done
from libs.common.contracts.credentials import (
    LOGIN,
    CloseMqttClients,
    MqttLoggedIn,
    MqttLogin,
    login_of,
)
from services.auth.connections.service import UserConnections


class MqttClients:
    """Asks `workflow`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def login(self, access_key: str, secret: str | None = None) -> MqttLoggedIn:
        """Who comes in with an access key and its secret; raises what `workflow` answers."""
        return await self._rpc.call(LOGIN, MqttLogin(access_key, secret), MqttLoggedIn)


def offer_clients(rpc: RpcServer, connections: UserConnections) -> None:
    """Answer `rpc.auth.close_mqtt_clients`."""

    async def close(wanted: CloseMqttClients) -> Done:
        await connections.close(login_of(wanted.access_key), ask_servers=True)
        return Done()

    rpc.offer("close_mqtt_clients", CloseMqttClients, close)
