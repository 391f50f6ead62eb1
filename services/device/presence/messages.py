"""`rpc.device.disconnect`: close the connections of a device whose key has ended."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import Disconnect, Done
from services.device.presence.connections import SystemAccount


def offer_disconnect(rpc: RpcServer, account: SystemAccount) -> None:
    """Offer the operation."""

    async def disconnect(request: Disconnect) -> Done:
        await account.close(request.sn)
        return Done()

    rpc.offer("disconnect", Disconnect, disconnect)
