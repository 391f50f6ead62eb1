"""What is asked about device credentials, and who is told to hang up."""

import logging

import msgspec

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.auth import DISCONNECT, DeviceLogin, DeviceRef, Disconnect, Done
from libs.common.errors import ThingwayError
from services.auth.devices.service import DeviceService

log = logging.getLogger(__name__)

TIMEOUT = 2.0
"""Seconds that the device service gets to hang up."""


class Disconnector:
    """Has live connections closed, as far as somebody is there to do it."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def __call__(self, user: str) -> None:
        """Close the connections of `user` (an SN or a client id); failure is only logged."""
        try:
            await self._rpc.call(DISCONNECT, Disconnect(user), Done, timeout=TIMEOUT)
        except (ThingwayError, msgspec.DecodeError) as error:
            log.info("live connections of %s were not closed: %s", user, error)


def offer_devices(rpc: RpcServer, service: DeviceService) -> None:
    """Offer the operations on device credentials as `rpc.auth.…`."""
    rpc.offer("issue_device_credentials", DeviceRef, service.issue)
    rpc.offer("revoke_device_credentials", DeviceRef, service.revoke)
    rpc.offer("check_device", DeviceLogin, service.check)
