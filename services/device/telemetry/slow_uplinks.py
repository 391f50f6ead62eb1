"""Messages of tenants whose codecs are slow: they wait apart from those of all others.

A tenant is slow when a codec of it has not read its frames of a batch in time, until all that waits
is dealt with. Meanwhile messages of devices that may send frames go into the lane of their
tenant, in their order, and each lane has batches of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.laned import LanedMessages
from libs.common.lru_cache import LruCache
from libs.common.things import DIRECT
from services.device.telemetry.uplink import Uplink, read_uplink
from services.device.things.model import Thing

BATCH = 8000
"""Messages of a tenant that wait, and that are dealt with together."""
TENANTS = 6
"""Slow tenants that have a batch in hand: fewer than there are processes of codecs."""
EXTENDED = 10.0
"""Seconds between two extensions of the time to acknowledge what waits."""
ENDING = 30.0
"""Seconds for which the end of the process waits for batches in hand."""
KNOWN = 100_000
"""Devices whose tenants are remembered."""


class SlowCodecs:
    """Finds the messages that wait, and deals with them."""

    def __init__(self, bus: Bus, handle: Callable[[list[Msg]], Awaitable[bool]]) -> None:
        """`handle` deals with a batch of one tenant and returns whether that succeeded."""
        self._messages = LanedMessages(
            bus, "slow codecs", self._tenant_of, handle, BATCH, TENANTS, BATCH
        )
        self._tenants: LruCache[str, str] = LruCache(KNOWN)

    async def run(self) -> None:
        """Keep messages that wait from being sent again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(EXTENDED)
                await self._messages.extend()
        finally:
            await self._messages.finish(ENDING)

    async def part(
        self,
        uplinks: Sequence[Uplink],
        things: Mapping[str, Thing],
        refused: Container[int],
        late: Container[str] = (),
    ) -> list[Uplink]:
        """Let messages of slow tenants and of `late` ones wait; return the others and `refused`."""
        now, waiting = list[Uplink](), list[Msg]()
        for uplink in uplinks:
            thing = things.get(uplink.sn)
            if (
                thing is None
                or uplink.sequence in refused
                or (uplink.channel != "frame" and thing.integration == DIRECT)
                or not (thing.tenant in late or self._messages.holds(thing.tenant))
            ):
                now.append(uplink)
            else:
                self._tenants.put(uplink.sn, thing.tenant)
                waiting.append(uplink.message)
        await self._messages.put(waiting)
        return now

    def _tenant_of(self, message: Msg) -> str:
        return self._tenants.get(read_uplink(message).sn) or ""
