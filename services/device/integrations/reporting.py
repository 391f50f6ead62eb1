"""Puts on `UPLINK` what things say that are not connected themselves."""

from typing import Any

import msgspec

from libs.common.bus import Bus, Outgoing
from libs.common.bus.hops import current_hops, hops_header
from libs.common.bus.subjects import up
from libs.common.errors import InvalidInput
from libs.common.telemetry import inject_context
from services.device.edge.service import STORED_WAIT
from services.device.reports.notify import HEADER, StoredWaiter
from services.device.things import Thing


class Reporter:
    """Speaks for things."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def say(
        self, thing: Thing, channel: str, payload: bytes, message_id: str | None = None
    ) -> None:
        """Say it; accepted when this returns. With an id once, as long as UPLINK knows ids."""
        known_as = None if message_id is None else f"{thing.id}-{channel}-{message_id}"
        await self._publish(thing, channel, payload, {}, known_as)

    async def report(self, thing: Thing, properties: dict[str, Any]) -> None:
        """Report properties as of now; they are stored and in force when this returns.

        Raises `InvalidInput` when they are refused, `UpstreamTimeout` when nobody says what
        became of them.
        """
        payload = msgspec.json.encode({"properties": properties})
        async with StoredWaiter(self._bus, 1) as waiter:
            await self._publish(thing, "report", payload, {HEADER: waiter.subject})
            (outcome,) = await waiter.wait(STORED_WAIT)
        if outcome.refused:
            raise InvalidInput(outcome.refused, field="properties")

    async def _publish(
        self,
        thing: Thing,
        channel: str,
        payload: bytes,
        headers: dict[str, str],
        message_id: str | None = None,
    ) -> None:
        inject_context(headers)
        headers |= hops_header(current_hops())
        await self._bus.publish([Outgoing(up(thing.sn, channel), payload, message_id, headers)])
