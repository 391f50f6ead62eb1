"""Connection history, stream states and the ledger in the management API.

`/system/streams` shows super admins the states of the platform's streams. It has no numbers of
messages, which would show a tenant how much others send.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from libs.common.bus import DEAD, Bus
from libs.common.bus.stored_messages import read_newest_events
from libs.common.bus.subjects import device_event
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.events import ConnectStatus, DeviceConnection
from libs.common.errors import Unavailable
from libs.common.http import RequestPrincipal
from libs.common.http.console import ResponseModel, get
from libs.common.http.guards import super_admins
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.store_metrics import StreamReading, read_stream
from services.device.telemetry.history import post_search
from services.device.telemetry.ledger import Ledger, read_uplink_counts
from services.device.things.directory import GrantedDevices

MAX_PAGE_SIZE = 100


class FindConnections(msgspec.Struct, kw_only=True):
    """Body of `POST /device/{device_id}/connections/search`."""

    page_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_SIZE)] = 20
    next_key: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}$")] | None = None
    """Position of the next page, as in the previous answer."""


class ConnectionEvent(msgspec.Struct, kw_only=True):
    """The device came online or went offline."""

    at: int
    """Unix time in ms."""
    status: ConnectStatus


class ConnectionEvents(ResponseModel, kw_only=True):
    """Changes of the connection state, the newest first."""

    content: list[ConnectionEvent]
    next_key: str | None = None


class ConnectionHistory:
    """Reads the connection history of devices."""

    def __init__(self, bus: Bus, devices: GrantedDevices) -> None:
        self._bus = bus
        self._devices = devices

    async def page(
        self, principal: Principal, device_id: int, request: FindConnections
    ) -> ConnectionEvents:
        """Return a page of the connection history of a device that the user may see.

        Changes under earlier owners are not included. Raises `Unavailable` when the message bus
        does not answer.
        """
        device = await self._devices.find(principal, device_id)
        subjects = [
            device_event(device.tenant, device.id, change) for change in ("online", "offline")
        ]
        before = None if request.next_key is None else int(request.next_key)
        size = request.page_size
        messages = await read_newest_events(self._bus, subjects, size + 1, before)
        events = [
            (to_ms(message.at), _decode_connection(message.message.data))
            for message in messages[:size]
        ]
        return ConnectionEvents(
            content=[
                ConnectionEvent(at=at, status=body.connect_status)
                for at, body in events
                if at >= device.owned_since
            ],
            next_key=str(messages[size - 1].sequence) if len(messages) > size else None,
        )


_decode_connection = msgspec.json.Decoder(DeviceConnection).decode


@post_search("/{device_id:str}/connections/search")
async def find_device_connections(
    principal: RequestPrincipal,
    connections: NamedDependency[ConnectionHistory],
    device_id: PathId,
    data: JSONBody[FindConnections | None] = None,
) -> ConnectionEvents:
    """List when the device came online or went offline in the last 7 days.

    The newest change comes first.
    """
    return await connections.page(principal, device_id, data or FindConnections())


CONNECTION_ROUTER = route_operations(globals(), "/device", tags=["Devices"])


class StreamState(msgspec.Struct):
    """The current state of one stream of the platform."""

    name: str
    oldest_seconds: float
    """Age of its oldest message; for `UPLINK` this is the delay of storing."""
    fill: float
    """Used part of its size limit, 0 to 1; 0 without a limit."""
    missing_copies: int
    """Replicas that are offline or behind."""


PARTITIONS_CACHE_SECONDS = 10.0
"""Seconds that the list of the partitions of `EVENTS` is cached."""


class StreamStateReader:
    """Reads the states of streams; `uplinks` are `UPLINK` and its partitions."""

    def __init__(self, bus: Bus, uplinks: Sequence[str]) -> None:
        self._bus = bus
        self._uplinks = uplinks

    async def read(self) -> list[StreamState]:
        """Return the state of each stream; raise `Unavailable` if the bus does not answer."""
        try:
            events = (await self._bus.read_partitions(PARTITIONS_CACHE_SECONDS)).streams
            names = [*self._uplinks, *events, DEAD]
            return [_build_state(name, await read_stream(self._bus, name)) for name in names]
        except (NatsError, APIError, TimeoutError) as error:
            raise Unavailable(f"NATS does not report its streams: {error!r}") from error


def _build_state(name: str, reading: StreamReading) -> StreamState:
    maximum = reading.config.max_bytes
    fill = reading.state.bytes / maximum if maximum > 0 else 0.0
    return StreamState(
        name, round(reading.oldest_age_seconds, 1), round(fill, 4), reading.missing_replicas
    )


@get("/streams", guards=[super_admins])
async def get_streams(streams: NamedDependency[StreamStateReader]) -> list[StreamState]:
    """Return the delay, fill and missing replicas of the platform's streams."""
    return await streams.read()


STREAM_ROUTER = route_operations(globals(), "/system", tags=["System"])


OPERATOR_TENANT = "default"
"""The tenant of the platform's operator. Only its users see the counts of all tenants."""


class LedgerReading(msgspec.Struct, kw_only=True):
    """The ledger at a time (`at`, ms): `accepted` = `stored` + `rejected` + `waiting`."""

    at: int
    """Time of the reading in milliseconds since 1970-01-01 UTC."""
    accepted: int
    """Number of messages that the platform has acknowledged."""
    stored: int
    """Number of stored messages."""
    rejected: int
    """Number of rejected messages."""
    waiting: int
    """Number of messages that are not processed yet."""


class LedgerReader:
    """Reads the ledger and the number of waiting messages in `UPLINK`."""

    def __init__(self, bus: Bus, streams: Sequence[str], ledger: Ledger) -> None:
        self._bus = bus
        self._streams = streams
        self._ledger = ledger

    async def read(self, principal: Principal) -> LedgerReading | None:
        """Return the message counts; None if `principal` is not of the operator's tenant."""
        if principal.tenant != OPERATOR_TENANT:
            return None
        counts = await read_uplink_counts(self._bus, self._streams, self._ledger)
        return LedgerReading(at=now_ms(), **asdict(counts))


@get("/ledger", guards=[super_admins])
async def get_ledger(
    principal: RequestPrincipal, ledger_reader: NamedDependency[LedgerReader]
) -> LedgerReading | None:
    """Count the messages of devices: accepted, stored, rejected and waiting.

    Every message is counted once; two readings give the rate. Only the tenant of the operator gets
    the counts, because they cover all tenants.
    """
    return await ledger_reader.read(principal)


LEDGER_ROUTER = route_operations(globals(), "/system", tags=["System"])
