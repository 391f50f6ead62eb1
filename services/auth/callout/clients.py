"""MQTT clients of tenants that are no devices; `workflow` keeps what they log in with."""

from libs.common.bus import RpcClient
from libs.common.contracts.mqtt import MQTT_LOGIN, MqttLoggedIn, MqttLogin


class MqttClients:
    """Asks `workflow`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def login(self, access_key: str, secret: str | None = None) -> MqttLoggedIn:
        """Who comes in with an access key and its secret; raises what `workflow` answers."""
        return await self._rpc.call(MQTT_LOGIN, MqttLogin(access_key, secret), MqttLoggedIn)
