"""What listeners hear on the bus."""

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, event_tenant
from libs.common.bus.hops import hops_of
from libs.common.bus.publishing import acknowledge, hand_back
from libs.common.changes import ALARMS, SUBJECTS, read_alarm, read_change
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.workflow.engine.runner import AT_ONCE, Engine, Start, admitted
from services.workflow.triggers.listeners.following import FollowedIndex
from services.workflow.triggers.listeners.holding import HeldBack
from services.workflow.triggers.listeners.index import starts_of

BATCH = 200
"""Events of a tenant that are taken at a time; other replicas take the next ones."""
TENANTS = 16
"""Tenants whose events are taken at the same time."""
ACK_WAIT = 60.0
"""Seconds after which an event that is not recorded goes to another replica."""

Event = tuple[Msg, list[Start]]
"""A message, and the runs that it begins."""

log = logging.getLogger(__name__)


class Listening:
    """Begins the runs of events."""

    def __init__(self, bus: Bus, followed: FollowedIndex, engine: Engine) -> None:
        self._bus = bus
        self._followed = followed
        self._engine = engine
        self._held = HeldBack(time.monotonic)

    async def take(self, messages: list[Msg]) -> None:
        """Record the runs of events; each is acknowledged then, or comes again later."""
        await self._followed.ready.wait()
        with batch("workflow batch", [trace_of(message.headers) for message in messages]):
            events: list[Event] = []
            number = 0
            for message in messages:
                events.append((message, self._starts(message)))
                number += len(events[-1][1])
                if number >= AT_ONCE:  # what many flows listen to shall not hold up the process
                    await self._begin(events)
                    events, number = [], 0
            await self._begin(events)

    async def _begin(self, events: Sequence[Event]) -> None:
        """Record runs. An event without room for all of its runs costs no write."""
        wanted: list[Start] = []
        refused: list[Start] = []
        for _, starts in events:
            fits = not starts or self._engine.fits(starts[0].flow.tenant, len(wanted + starts))
            (wanted if fits else refused).extend(starts)
        refused += await admitted(self._engine, wanted)
        again = self._again(events, refused) if refused else {}
        done = [message for message, _ in events if message.reply not in again]
        await acknowledge(self._bus.client, done)
        if again:
            await hand_back(self._bus.client, again)

    def _starts(self, message: Msg) -> list[Start]:
        try:
            about_alarm = message.subject.split(".")[2] == "alarm"
            change = (read_alarm if about_alarm else read_change)(message.data)
        except INVALID_JSON as error:
            log.warning("%s is not readable: %s", message.subject, error)
            return []
        hops, trace = hops_of(message.headers), trace_of(message.headers)
        return list(starts_of(self._followed.index, change, hops, trace))

    def _again(self, events: Sequence[Event], refused: list[Start]) -> dict[str, float]:
        """The messages that have to come again, and in how many seconds."""
        without_room = set(map(id, refused))
        again: dict[str, float] = {}
        for message, starts in events:
            lost = [one for one in starts if id(one) in without_room]
            if not lost:
                continue
            age = datetime.now(UTC) - message.metadata.timestamp
            seconds = self._held.hold(lost[0].flow.tenant, age.total_seconds())
            if seconds is not None:
                again[message.reply] = seconds
                continue
            for start in lost:
                self._engine.refuse(start)
        return again


def listen(bus: Bus, followed: FollowedIndex, engine: Engine) -> BatchConsumer:
    """The consumer that all replicas share; an event is acknowledged when its runs are recorded."""
    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable="workflow",
        handle=Listening(bus, followed, engine).take,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
        ack_wait=ACK_WAIT,
        subjects=(*SUBJECTS, ALARMS),
        from_now=True,
    )
