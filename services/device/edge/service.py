"""Takes reports, events and replies over HTTP, and gives commands."""

import asyncio
from contextlib import AsyncExitStack

from libs.common.bus import Bus, Outgoing, publish_all
from libs.common.bus.subjects import up
from libs.common.clock import now_ms
from libs.common.errors import InvalidInput, TooLarge, TooManyRequests
from libs.common.identity import Principal
from libs.common.jobs import happened
from libs.common.limits.meter import MessageMeter
from libs.common.limits.metrics import count_limited
from libs.common.telemetry import inject_context
from services.device.commands.model import now
from services.device.commands.store import CommandStore
from services.device.edge.checking import (
    Check,
    check_event,
    check_reply,
    check_report,
    read_entries,
    sort_entries,
)
from services.device.edge.schemas import Accepted, Commands, RefusedEntry
from services.device.edge.waiting import WaitingDevices
from services.device.history.partitions import DAY_MS
from services.device.presence.http import HttpPresence
from services.device.reports.notify import HEADER, StoredWaiter
from services.device.reports.uplink import MAX_PAYLOAD
from services.device.things import Thing
from services.device.things.access import Things

STORED_WAIT = 10.0
"""Seconds that `?wait=stored` waits."""
LONGEST_POLL = 60
"""Seconds that a device may wait for commands."""
CHECKS: dict[str, Check] = {"report": check_report, "event": check_event, "reply": check_reply}


class EdgeService:
    """The HTTP side of what MQTT devices do on their subjects."""

    def __init__(
        self,
        *,
        bus: Bus,
        things: Things,
        commands: CommandStore,
        waiting: WaitingDevices,
        presence: HttpPresence,
        meter: MessageMeter,
        retention_days: int,
    ) -> None:
        self._bus = bus
        self._things = things
        self._commands = commands
        self._waiting = waiting
        self._presence = presence
        self._meter = meter
        self._retention_ms = retention_days * DAY_MS

    async def accept(
        self, principal: Principal, sn: str, channel: str, body: bytes, *, stored: bool
    ) -> Accepted:
        """Put what `body` holds on `UPLINK`; with `stored`, wait until it is in MongoDB.

        A single entry that is refused whole is a 400; of an array each refused entry is
        listed. Accepted entries of one request are on the stream all or not at all. Raises
        `TooManyRequests` when they are more than the device or its tenant may send.
        """
        thing = await self._things.of_device(principal, sn)
        entries, is_array = read_entries(body)
        accepted, refused = sort_entries(
            CHECKS[channel], thing, entries, now_ms(), self._retention_ms
        )
        if not is_array and not accepted:
            raise _single_refusal(refused)
        if not accepted:
            await self._presence.heard(thing)
            return Accepted(0, refused)
        self._count(thing, accepted)
        headers: dict[str, str] = {}
        inject_context(headers)
        async with AsyncExitStack() as stack:
            waiter = None
            if stored:
                waiter = await stack.enter_async_context(StoredWaiter(self._bus, len(accepted)))
                headers[HEADER] = waiter.subject
            subject = up(thing.sn, channel)
            await publish_all(
                self._bus, [Outgoing(subject, raw, None, headers) for raw in accepted]
            )
            await self._presence.heard(thing)
            if waiter is None:
                return Accepted(len(accepted), refused)
            outcomes = await waiter.wait(STORED_WAIT)
        late = [RefusedEntry(-1, channel, one.refused) for one in outcomes if one.refused]
        return Accepted(len(accepted) - len(late), refused + late)

    def _count(self, thing: Thing, accepted: list[bytes]) -> None:
        size = sum(map(len, accepted))
        excess = self._meter.take(thing.tenant, thing.id, len(accepted), size, now_ms() / 1000)
        if excess is not None:
            count_limited(excess.limit, thing.tenant)
            raise TooManyRequests(excess.reason, retry_after=excess.wait)

    async def commands(self, principal: Principal, sn: str, wait: int) -> Commands:
        """The commands that the device has not answered; wait up to `wait` s for a first."""
        thing = await self._things.of_device(principal, sn)
        await self._presence.heard(thing)
        deadline = asyncio.get_running_loop().time() + min(wait, LONGEST_POLL)
        with self._waiting.waiting(thing.sn) as arrived:
            while True:
                taken = await self._commands.take_for_poll(thing.id, now())
                left = deadline - asyncio.get_running_loop().time()
                if taken or left <= 0:
                    return Commands([command.wire() for command in taken])
                await happened(arrived, left)
                arrived.clear()


def _single_refusal(refused: list[RefusedEntry]) -> InvalidInput | TooLarge:
    first = refused[0]
    if first.field == "entry":
        return TooLarge(f"a message may have {MAX_PAYLOAD} bytes")
    return InvalidInput(first.reason, field=first.field, detail=Accepted(0, refused))
