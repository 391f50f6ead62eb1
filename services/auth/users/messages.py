"""What the operator asks about users, and what is asked of `device` about devices."""

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.names import DEVICES, DescribedDevices, DescribeDevices
from libs.common.contracts.users import CreateUser, DescribeUsers, UserRefByEmail
from services.auth.users.account import AccountService


def offer_users(rpc: RpcServer, service: AccountService) -> None:
    """Offer the operator's operations on users as `rpc.auth.…`, and what services ask."""
    rpc.offer("create_user", CreateUser, service.create)
    rpc.offer("reset_user_password", UserRefByEmail, service.reset_password)
    rpc.offer("describe_users", DescribeUsers, service.describe)


class DeviceNames:
    """Asks `device` which integration a device belongs to."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def integration_of(self, tenant: str, device_id: int) -> str | None:
        """The integration of a device, None when there is no such device."""
        wanted = DescribeDevices(tenant, ids=[device_id])
        found = await self._rpc.call(DEVICES, wanted, DescribedDevices)
        return found.devices[0].integration if found.devices else None
