"""Connections of devices, streams and the ledger on the console.

`/system/streams`: how the streams of the platform are doing, for whoever runs a tenant.

Numbers of messages would tell a tenant how much others send, so there are none.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from nats.errors import Error as NatsError

from libs.common.bus import DEAD, EVENTS, UPLINK, Bus
from libs.common.bus.retained_messages import read_newest
from libs.common.bus.streams import PARTITIONS
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.events import Connect, DeviceConnection
from libs.common.errors import Unavailable
from libs.common.http import RequestPrincipal
from libs.common.http.console import ResponseModel, get
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.identity import Principal
from libs.common.store_metrics import StreamReading, read_stream
from services.device.telemetry.history import post_search
from services.device.telemetry.ledger import Ledger, read_uplink
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


class ConnectionEvents(ResponseModel, kw_only=True):
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
        found = await read_newest(self._bus, EVENTS, subjects, size + 1, before)
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


@post_search("/{device_id:str}/connections/search")
async def find_device_connections(
    principal: RequestPrincipal,
    connections: NamedDependency[Connections],
    device_id: PathId,
    data: JSONBody[FindConnections | None] = None,
) -> ConnectionEvents:
    """When the device came online and went offline in the last 7 days, the newest first."""
    return await connections.page(principal, device_id, data or FindConnections())


CONNECTION_ROUTER = Router("/device", route_handlers=[find_device_connections], tags=["Devices"])


class StreamState(msgspec.Struct):
    """One stream of the platform, at this moment."""

    name: str
    oldest_seconds: float
    """Age of its oldest message; of `UPLINK` that is how far storing lags behind."""
    fill: float
    """Part of its bound that is used, 0 to 1; 0 without a bound."""
    missing_copies: int
    """Copies that are away or behind."""


class Streams:
    """Reads the streams; UPLINK is one, or one and so many `partitions`."""

    def __init__(self, bus: Bus, partitions: int) -> None:
        self._bus = bus
        self._names: Sequence[str] = [UPLINK, *_partitions(partitions), EVENTS, DEAD]

    async def read(self) -> list[StreamState]:
        """The state of each; raise `Unavailable` when the bus does not tell."""
        try:
            return [_state(name, await read_stream(self._bus, name)) for name in self._names]
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"the bus does not tell of its streams: {error!r}") from error


def _partitions(number: int) -> Sequence[str]:
    return list(PARTITIONS)[:number] if number > 1 else []


def _state(name: str, reading: StreamReading) -> StreamState:
    most = reading.config.max_bytes
    fill = reading.state.bytes / most if most > 0 else 0.0
    return StreamState(name, round(reading.oldest, 1), round(fill, 4), reading.missing)


@get("/streams", guards=[super_admins])
async def get_streams(streams: NamedDependency[Streams]) -> list[StreamState]:
    """How far storing lags behind, how full the streams are, and whether copies are missing."""
    return await streams.read()


STREAM_ROUTER = Router("/system", route_handlers=[get_streams], tags=["System"])


OPERATOR = "default"
"""The tenant of whoever runs the platform: the counts are those of all tenants together."""


class LedgerReading(msgspec.Struct, kw_only=True):
    """The ledger at a moment (`at`, ms): `accepted` = `stored` + `rejected` + `waiting`."""

    at: int
    accepted: int
    stored: int
    rejected: int
    waiting: int


class LedgerReader:
    """Reads the ledger and what waits in the streams of `UPLINK`."""

    def __init__(self, bus: Bus, streams: Sequence[str], ledger: Ledger) -> None:
        self._bus = bus
        self._streams = streams
        self._ledger = ledger

    async def read(self, principal: Principal) -> LedgerReading | None:
        """The counts since the platform was set up; None for other tenants."""
        if principal.tenant != OPERATOR:
            return None
        reading = await read_uplink(self._bus, self._streams, self._ledger)
        return LedgerReading(at=now_ms(), **asdict(reading))


@get("/ledger", guards=[super_admins])
async def get_ledger(
    principal: RequestPrincipal, ledger_reader: NamedDependency[LedgerReader]
) -> LedgerReading | None:
    """Every message of a device is counted once: what was accepted is stored, refused or waits.

    Two readings tell the rate. Only the tenant of the operator is told: the counts are those of
    all tenants.
    """
    return await ledger_reader.read(principal)


LEDGER_ROUTER = Router("/system", route_handlers=[get_ledger], tags=["System"])
