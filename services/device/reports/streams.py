"""`/system/streams`: how the streams of the platform are doing, for whoever runs a tenant.

Numbers of messages would tell a tenant how much others send, so there are none.
"""

from collections.abc import Sequence

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from nats.errors import Error as NatsError

from libs.common.bus import DEAD, EVENTS, UPLINK, Bus
from libs.common.bus.streams import PARTITIONS
from libs.common.errors import Unavailable
from libs.common.http.console import get
from libs.common.http.guards import super_admins
from libs.common.http.operations import operations_of
from libs.common.store_metrics import StreamReading, read_stream


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


ROUTER = Router("/system", route_handlers=operations_of(globals()), tags=["System"])
