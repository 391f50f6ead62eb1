"""Messages of tenants whose codecs are slow: they wait apart from those of all others.

A tenant is slow when a codec of it has not read its frames of a batch in time, and for a while
after that. Then the messages of devices that may send frames go into the lane of their tenant, in
their order, and each lane has batches of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.laned import LanedMessages
from libs.common.recent import Recent
from libs.common.things import DIRECT
from services.device.reports.uplink import Uplink, read_uplink
from services.device.things import Thing

SLOW = 10.0
"""Seconds for which a tenant counts as slow."""
BATCH = 2000
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
        name = "slow codecs"
        self._messages = LanedMessages(bus, name, self._tenant_of, handle, BATCH, TENANTS)
        self._until: dict[str, float] = {}
        """By tenant, until when it is slow at least (monotonic)."""
        self._tenants: Recent[str, str] = Recent(KNOWN)

    async def run(self) -> None:
        """Keep messages that wait from being sent again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(EXTENDED)
                await self._messages.extend()
        finally:
            await self._messages.finish(ENDING)

    def note(self, tenants: Iterable[str]) -> None:
        """Note that codecs of tenants are slow."""
        self._until |= dict.fromkeys(tenants, time.monotonic() + SLOW)

    def part(
        self, uplinks: Sequence[Uplink], things: Mapping[str, Thing], refused: Container[int]
    ) -> tuple[list[Uplink], list[Uplink]]:
        """Return what is dealt with now, and what waits; nothing waits that is `refused`."""
        if not self._until:
            return list(uplinks), []
        now = time.monotonic()
        for tenant in [one for one, until in self._until.items() if until < now]:
            if not self._messages.holds(tenant):
                del self._until[tenant]
        parts: tuple[list[Uplink], list[Uplink]] = [], []
        for uplink in uplinks:
            thing = things.get(uplink.sn)
            waits = thing is not None and thing.tenant in self._until
            if waits and thing is not None:
                self._tenants.put(uplink.sn, thing.tenant)
                waits = uplink.channel == "frame" or thing.integration != DIRECT
            parts[waits and uplink.sequence not in refused].append(uplink)
        return parts

    async def put(self, uplinks: Iterable[Uplink]) -> None:
        """Let messages wait in the lanes of their tenants."""
        await self._messages.put(one.message for one in uplinks)

    def _tenant_of(self, message: Msg) -> str:
        return self._tenants.get(read_uplink(message).sn) or ""
