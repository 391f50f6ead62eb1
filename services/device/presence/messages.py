"""`rpc.device.disconnect`: close the connections of a device whose key has ended."""

import msgspec

from libs.common.bus import RpcServer
from libs.common.contracts.auth import Done
from services.device.presence.connections import SystemAccount


class Disconnect(msgspec.Struct):
    """The request: an SN."""

    sn: str


def offer_disconnect(rpc: RpcServer, account: SystemAccount) -> None:
    """Offer the operation."""

    async def disconnect(request: Disconnect) -> Done:
        await account.close(request.sn)
        return Done()

    rpc.offer("disconnect", Disconnect, disconnect)
