"""Messages of tenants with slow codecs, which wait apart from all others.

A tenant becomes slow when one of its codecs does not decode its frames of a batch in time, and
stays slow until all its waiting messages are processed. Meanwhile the messages of its devices that
may send frames go into the lane of the tenant, in order, and each lane has its own batches.
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
"""Messages of a tenant that wait, and that are processed together."""
TENANTS = 6
"""Slow tenants that are processed concurrently: fewer than there are codec processes."""
EXTENDED = 10.0
"""Seconds between two extensions of the acknowledgement deadline of waiting messages."""
ENDING = 30.0
"""Seconds that shutdown waits for running batches."""
KNOWN = 100_000
"""Devices whose tenants are cached."""


class SlowCodecs:
    """Separates messages of tenants with slow codecs, and processes them."""

    def __init__(self, bus: Bus, handle: Callable[[list[Msg]], Awaitable[bool]]) -> None:
        """`handle` processes a batch of one tenant; if it returns False, the batch is retried."""
        self._messages = LanedMessages(
            bus, "slow codecs", self._tenant_of, handle, BATCH, TENANTS, BATCH
        )
        self._tenants: LruCache[str, str] = LruCache(KNOWN)

    async def run(self) -> None:
        """Extend the deadline of waiting messages, until cancelled."""
        try:
            while True:
                await asyncio.sleep(EXTENDED)
                await self._messages.extend()
        finally:
            await self._messages.finish(ENDING)

    async def separate(
        self,
        uplinks: Sequence[Uplink],
        things: Mapping[str, Thing],
        refused: Container[int],
        late: Container[str] = (),
    ) -> list[Uplink]:
        """Queue messages of slow tenants and of `late` ones; return the others.

        Messages in `refused` are returned too.
        """
        immediate, waiting = list[Uplink](), list[Msg]()
        for uplink in uplinks:
            thing = things.get(uplink.sn)
            if (
                thing is None
                or uplink.sequence in refused
                or (uplink.channel != "frame" and thing.integration == DIRECT)
                or not (thing.tenant in late or self._messages.holds(thing.tenant))
            ):
                immediate.append(uplink)
            else:
                self._tenants.put(uplink.sn, thing.tenant)
                waiting.append(uplink.message)
        await self._messages.put(waiting)
        return immediate

    def _tenant_of(self, message: Msg) -> str:
        return self._tenants.get(read_uplink(message).sn) or ""
