"""What MQTT clients outside publish, as it is heard on the bus.

Replicas share the messages. A message is not kept: it runs the flows that listen when it comes.
"""

import base64
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.subjects import OUTSIDE_TOPICS, outside_topic
from libs.common.errors import ThingwayError
from libs.common.scheduling import Caps, FairScheduler, LaneFull
from libs.common.store.mongo import StoreError
from services.workflow.engine.runner import Engine, Start, admitted
from services.workflow.runs.records import Cause
from services.workflow.triggers.listeners.following import FollowedIndex

log = logging.getLogger(__name__)

WAITING, WAITING_BYTES = 10_000, 32 * 1024**2
"""Messages of a tenant that wait, and their bytes; of more the newest are dropped."""
MOST_BYTES, FEW = 128 * 1024**2, 100
"""While so many bytes wait for all tenants, a tenant has at most so few messages."""
COST = 512
"""Bytes of memory that a message takes beside its payload."""
LARGEST = 256 * 1024
"""Bytes of a message; a larger one is dropped."""
HANDLED, EACH = 256, 16
"""Messages that are handled at a time, and those of one tenant."""


class TopicListening:
    """Begins the runs of messages, in turns of tenants."""

    def __init__(self, bus: Bus, followed: FollowedIndex, engine: Engine) -> None:
        self._bus = bus
        self._followed = followed
        self._engine = engine
        self._scheduler = FairScheduler(
            "messages for flows",
            HANDLED,
            items=WAITING,
            size=WAITING_BYTES,
            caps=lambda _: Caps(EACH, sub=EACH),
        )

    async def run(self) -> None:
        """Begin to listen."""
        await self._bus.client.subscribe(
            OUTSIDE_TOPICS,
            queue="workflow",
            cb=self._take,
            pending_msgs_limit=WAITING,
            pending_bytes_limit=WAITING_BYTES,
        )

    async def _take(self, message: Msg) -> None:
        tenant = outside_topic(message.subject)[0].rpartition("@")[2]
        full = self._scheduler.size >= MOST_BYTES and self._scheduler.waiting(tenant) >= FEW
        if full or len(message.data) > LARGEST:
            self._scheduler.note_overflow(tenant)
            return
        size = len(message.data) + COST
        with suppress(LaneFull):
            self._scheduler.start(tenant, partial(self._begin, tenant, message), size=size)

    async def _begin(self, tenant: str, message: Msg) -> None:
        await self._followed.ready.wait()
        try:
            for start in await admitted(self._engine, self._starts(tenant, message)):
                self._engine.refuse(start)
        except (ThingwayError, StoreError) as error:
            log.warning("a message of %s began no flow: %s", tenant, error)

    def _starts(self, tenant: str, message: Msg) -> Iterator[Start]:
        _, topic = outside_topic(message.subject)
        for flow, parameters in self._followed.topics.match(tenant, topic):
            if parameters.encoding == "Base64":
                payload = base64.b64encode(message.data).decode()
            else:
                payload = message.data.decode(errors="replace")
            cause = Cause(kind="MQTT", key=f"m-{uuid4().hex}")
            yield Start(flow, {"topic": topic, "payload": payload}, cause)
