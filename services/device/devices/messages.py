"""What devices say on the bus, and what they ask of `auth`."""

from typing import Any, Literal
from uuid import uuid4

from libs.common.bus import OutboxEntry, RpcClient
from libs.common.bus.fitting import fitted
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms
from libs.common.contracts import auth
from libs.common.contracts.events import DeviceChanged
from services.device.devices.schemas import Credentials
from services.device.things.directory import profile_of

Change = Literal["added", "updated", "deleted", "removed"]


def changed(device: dict[str, Any], change: Change) -> OutboxEntry:
    """`device.{id}.(added|updated|deleted)`; removed from its application is an update."""
    event = DeviceChanged(
        event_id=str(uuid4()),
        created_at=now_ms(),
        tenant=device["tenant"],
        device=profile_of(device),
        change=change,
    )
    what = "updated" if change == "removed" else change
    return OutboxEntry(device_event(device["tenant"], device["_id"], what), fitted(event))


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
