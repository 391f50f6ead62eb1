"""Begins the runs of events on the bus: each makes one run of each flow that listens to its values.

Events come again later while runs of their tenant have no room. The bus keeps them meanwhile. It
does so for a consumer as a whole, so nobody may have more of them held back than are left to the
others.
"""

import heapq
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, event_tenant
from libs.common.bus.hops import read_hops
from libs.common.bus.publishing import acknowledge, hand_back
from libs.common.changes import ALARMS, SUBJECTS, read_alarm, read_change
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import read_trace, trace_batch
from services.workflow.engine.runner import AT_ONCE, Engine, Start, admitted
from services.workflow.triggers.deployed_flows import DeployedFlowIndex
from services.workflow.triggers.listener_index import starts_of

MOST = 50_000
"""Events held back by a process; the bus lets all replicas have 200,000 in hand."""
SHORTEST, LONGEST = 1.0, 5.0
"""Seconds between two attempts: as many as the event is old. Room for runs is soon used again."""
LATEST = 300.0
"""Seconds after which an event is given up. By its run, which stays for ten minutes at least
(`runs.log`), an event is known that has made some of its runs and comes again for others."""
log = logging.getLogger(__name__)

BATCH = 200
"""Events of a tenant that are taken at a time; other replicas take the next ones."""
TENANTS = 16
"""Tenants whose events are taken at the same time."""
ACK_WAIT = 60.0
"""Seconds after which an event that is not recorded goes to another replica."""
Event = tuple[Msg, list[Start]]
"""A message, and the runs that it begins."""


class DelayedEvents:
    """Counts the events that this process has held back and that have not come again."""

    def __init__(self, now: Callable[[], float], most: int = MOST) -> None:
        """`now` gives seconds."""
        self._now = now
        self._free = most
        self._held: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []

    def hold(self, tenant: str, age: float) -> float | None:
        """The seconds after which an event shall come again; None when it is to be given up.

        `age` is how many seconds ago it was published.
        """
        now = self._now()
        while self._due and self._due[0][0] <= now:
            self._count(heapq.heappop(self._due)[1], -1)
        if age >= LATEST or self._held[tenant] >= self._free:
            return None
        seconds = min(max(age, SHORTEST), LONGEST)
        self._count(tenant, 1)
        heapq.heappush(self._due, (now + seconds, tenant))
        return seconds

    def _count(self, tenant: str, more: int) -> None:
        self._free -= more
        self._held[tenant] += more
        if not self._held[tenant]:
            del self._held[tenant]


class EventConsumer:
    """Begins the runs of events."""

    def __init__(self, bus: Bus, followed: DeployedFlowIndex, engine: Engine) -> None:
        self._bus = bus
        self._followed = followed
        self._engine = engine
        self._held = DelayedEvents(time.monotonic)

    async def handle(self, messages: list[Msg]) -> None:
        """Record the runs of events; each is acknowledged then, or comes again later."""
        await self._followed.ready.wait()
        with trace_batch("workflow batch", [read_trace(message.headers) for message in messages]):
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
        hops, trace = read_hops(message.headers), read_trace(message.headers)
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


def consume_events(bus: Bus, followed: DeployedFlowIndex, engine: Engine) -> BatchConsumer:
    """The consumer that all replicas share; an event is acknowledged when its runs are recorded."""
    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable="workflow",
        handle=EventConsumer(bus, followed, engine).handle,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
        ack_wait=ACK_WAIT,
        subjects=(*SUBJECTS, ALARMS),
        from_now=True,
    )
