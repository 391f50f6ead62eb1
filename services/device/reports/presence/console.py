"""`/device/{device_id}/connections`: when a device came and went, on the console."""

from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.bus import EVENTS, Bus
from libs.common.bus.retained_messages import newest
from libs.common.bus.subjects import device_event
from libs.common.clock import to_ms
from libs.common.contracts.events import Connect, DeviceConnection
from libs.common.http import Requester
from libs.common.http.console import Shown, post
from libs.common.http.guards import holders
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from services.device.things.directory import GrantedDevices

LARGEST_PAGE = 100


class FindConnections(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/connections/search`."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = 20
    next_key: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}$")] | None = None
    """Where the next page begins, as an answer has given it."""


class ConnectionEvent(msgspec.Struct, kw_only=True):
    """A device came or went."""

    at: int
    """ms."""
    status: Connect


class ConnectionEvents(Shown, kw_only=True):
    """Comings and goings, the newest first."""

    content: list[ConnectionEvent]
    next_key: str | None = None


class Connections:
    """Reads when devices came and went."""

    def __init__(self, bus: Bus, devices: GrantedDevices) -> None:
        self._bus = bus
        self._devices = devices

    async def page(
        self, principal: Principal, device_id: int, wanted: FindConnections
    ) -> ConnectionEvents:
        """A page of a device that the user sees; raise `Unavailable` where the bus is silent."""
        device = await self._devices.find(principal, device_id)
        subjects = [device_event(device.tenant, device.id, one) for one in ("online", "offline")]
        before = None if wanted.next_key is None else int(wanted.next_key)
        size = wanted.page_size
        found = await newest(self._bus, EVENTS, subjects, size + 1, before)
        told = [(to_ms(one.at), _decode(one.message.data)) for one in found[:size]]
        return ConnectionEvents(
            content=[
                ConnectionEvent(at=at, status=body.connect_status)
                for at, body in told
                if at >= device.owned_since
            ],
            next_key=str(found[size - 1].sequence) if len(found) > size else None,
        )


_decode = msgspec.json.Decoder(DeviceConnection).decode


@post(
    "/{device_id:str}/connections/search",
    guards=[holders(Function.DEVICE_VIEW)],
    example={"page_size": 20},
)
async def find_device_connections(
    principal: Requester,
    connections: NamedDependency[Connections],
    device_id: PathId,
    data: JSONBody[FindConnections | None] = None,
) -> ConnectionEvents:
    """When the device came online and went offline in the last 7 days, the newest first."""
    return await connections.page(principal, device_id, data or FindConnections())


ROUTER = Router("/device", route_handlers=operations_of(globals()), tags=["Devices"])
