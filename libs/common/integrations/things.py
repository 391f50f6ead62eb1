"""What an integration tells the platform of its devices and of itself, and asks about them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from libs.common.bus import RpcClient
from libs.common.contracts.frames import (
    FramesTold,
    TellDownlink,
    TellFrames,
    TellLink,
    ToldFrame,
)
from libs.common.contracts.integrations import (
    Acknowledged,
    DeviceRef,
    GetOwnValues,
    GetTsl,
    GotTsl,
    ListDevices,
    ListedDevices,
    NewDevice,
    OwnValues,
    PutDevice,
    TellEvent,
    TellOwnReport,
    TellReply,
    TellReport,
    tell_subject,
)

PAGE = 500


class IntegrationThings:
    """The things of one integration. Every call raises what `device` answers."""

    def __init__(self, rpc: RpcClient, integration: str) -> None:
        self._rpc = rpc
        self._id = integration

    async def report(
        self,
        tenant: str,
        identifier: str,
        properties: dict[str, Any],
        ts: int | None = None,
        *,
        report_id: str | None = None,
    ) -> None:
        """Report properties of a device (`ts` in ms); accepted when this returns.

        Told again with the same `report_id` within two minutes, it is stored once.
        """
        told = TellReport(
            tenant=tenant,
            identifier=identifier,
            properties=properties,
            ts=ts,
            report_id=report_id,
        )
        await self._rpc.call(tell_subject(self._id, "report"), told, Acknowledged)

    async def event(
        self,
        tenant: str,
        identifier: str,
        event_id: str,
        outputs: dict[str, Any],
        ts: int | None = None,
    ) -> None:
        """Tell an event of a device."""
        told = TellEvent(
            tenant=tenant, identifier=identifier, event_id=event_id, outputs=outputs, ts=ts
        )
        await self._rpc.call(tell_subject(self._id, "event"), told, Acknowledged)

    async def reply(
        self,
        tenant: str,
        identifier: str,
        command_id: int | str,
        status: Literal["SUCCESS", "FAILED"],
        *,
        outputs: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Tell what became of a command."""
        told = TellReply(
            tenant=tenant,
            identifier=identifier,
            command_id=command_id,
            status=status,
            outputs=outputs,
            error=error,
        )
        await self._rpc.call(tell_subject(self._id, "reply"), told, Acknowledged)

    async def frames(self, frames: Sequence[ToldFrame]) -> FramesTold:
        """Tell up to 500 uplinks; all but the refused are accepted when this returns."""
        told = TellFrames(frames=list(frames))
        return await self._rpc.call(tell_subject(self._id, "frames"), told, FramesTold)

    async def downlink(self, told: TellDownlink) -> None:
        """Tell what became of a downlink."""
        await self._rpc.call(tell_subject(self._id, "downlink"), told, Acknowledged)

    async def link(self, told: TellLink) -> None:
        """Tell a join, or what a device answered about its state."""
        await self._rpc.call(tell_subject(self._id, "link"), told, Acknowledged)

    async def own_report(self, tenant: str, properties: dict[str, Any]) -> None:
        """Set properties of the integration itself, as far as its TSL has them."""
        told = TellOwnReport(tenant=tenant, properties=properties)
        await self._rpc.call(tell_subject(self._id, "own_report"), told, Acknowledged)

    async def own_values(self, tenant: str) -> OwnValues:
        """The latest values of the integration itself in a tenant."""
        return await self._rpc.call(
            tell_subject(self._id, "own_values"), GetOwnValues(tenant), OwnValues
        )

    async def put_device(self, tenant: str, name: str, device: NewDevice) -> DeviceRef:
        """Bring a device in that nobody asked for; open to built-in integrations only."""
        wanted = PutDevice(tenant=tenant, name=name, device=device)
        return await self._rpc.call(tell_subject(self._id, "put_device"), wanted, DeviceRef)

    async def tsl(self, tenant: str, identifier: str) -> dict[str, Any]:
        """The TSL document of a device."""
        wanted = GetTsl(tenant=tenant, identifier=identifier)
        return (await self._rpc.call(tell_subject(self._id, "get_tsl"), wanted, GotTsl)).tsl

    async def devices(self) -> AsyncIterator[DeviceRef]:
        """All devices of the integration, of all tenants, by id."""
        after = 0
        while True:
            wanted = ListDevices(after=after, limit=PAGE)
            subject = tell_subject(self._id, "list_devices")
            found = (await self._rpc.call(subject, wanted, ListedDevices)).devices
            for device in found:
                yield device
            if len(found) < PAGE:
                return
            after = found[-1].device_id
