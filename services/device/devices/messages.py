"""What devices ask of `auth`."""

from libs.common.bus import RpcClient
from libs.common.contracts import auth
from services.device.devices.schemas import Credentials


class CredentialsOverRpc:
    """Device credentials, kept by `auth`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def issue(self, sn: str, device_id: int, tenant: str) -> Credentials:
        """Make a new key; the old one dies."""
        answer = await self._rpc.call(
            "rpc.auth.issue_device_credentials",
            auth.DeviceRef(sn, device_id, tenant),
            auth.DeviceCredentials,
        )
        return Credentials(answer.sn, answer.key)

    async def revoke(self, sn: str, device_id: int, tenant: str) -> None:
        """Let the key of this device open nothing any more."""
        await self._rpc.call(
            "rpc.auth.revoke_device_credentials",
            auth.DeviceRef(sn, device_id, tenant),
            auth.Done,
        )
