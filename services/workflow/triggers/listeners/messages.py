"""What listeners hear on the bus."""

import logging
import time
from collections.abc import Iterable, Mapping

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus
from libs.common.bus.hops import hops_of
from libs.common.bus.wire import acknowledge, hand_back
from libs.common.changes import ALARMS, SUBJECTS, read_alarm, read_change
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.workflow.engine.runner import Engine, Start, admitted
from services.workflow.triggers.listeners.following import FollowedIndex
from services.workflow.triggers.listeners.holding import HeldBack
from services.workflow.triggers.listeners.index import starts_of

BATCH = 200
"""Events that are taken at a time; other replicas take the next ones."""
ACK_WAIT = 60.0
"""Seconds after which an event that is not recorded goes to another replica."""

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
            await self._take(messages)

    async def _take(self, messages: list[Msg]) -> None:
        starts = {message.reply: self._starts(message) for message in messages}
        refused = await admitted(self._engine, [one for some in starts.values() for one in some])
        again = self._again(messages, starts, refused) if refused else {}
        done = [message for message in messages if message.reply not in again]
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

    def _again(
        self, messages: Iterable[Msg], starts: Mapping[str, list[Start]], refused: list[Start]
    ) -> dict[str, float]:
        """The messages that have to come again, and in how many seconds."""
        without_room = set(map(id, refused))
        again: dict[str, float] = {}
        for message in messages:
            lost = [one for one in starts[message.reply] if id(one) in without_room]
            if not lost:
                continue
            attempts = message.metadata.num_delivered
            seconds = self._held.hold(lost[0].flow.tenant, attempts)
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
        batch=BATCH,
        ack_wait=ACK_WAIT,
        subjects=(*SUBJECTS, ALARMS),
        from_now=True,
    )
