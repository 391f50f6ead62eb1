"""What MQTT clients outside publish, as it is heard on the bus.

Replicas share the messages. A message is not kept: it runs the flows that listen when it comes.
"""

import base64
import logging
from collections.abc import Iterator
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.subjects import OUTSIDE_TOPICS, outside_topic
from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError
from services.workflow.engine.runner import Engine, Start, admitted
from services.workflow.runs.records import Cause
from services.workflow.triggers.listeners.following import FollowedIndex

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""Messages that wait; of more the newest are dropped."""
LARGEST_WAITING = 64 * 1024**2
"""Bytes of these."""
LARGEST = 256 * 1024
"""Bytes of a message; a larger one is dropped."""
BATCH = 200


class TopicListening:
    """Begins the runs of messages."""

    def __init__(self, bus: Bus, followed: FollowedIndex, engine: Engine) -> None:
        self._bus = bus
        self._followed = followed
        self._engine = engine

    async def run(self) -> None:
        """Listen for ever."""
        subscription = await self._bus.client.subscribe(
            OUTSIDE_TOPICS,
            queue="workflow",
            pending_msgs_limit=MOST_WAITING,
            pending_bytes_limit=LARGEST_WAITING,
        )
        await self._followed.ready.wait()
        while True:
            batch = [await subscription.next_msg(timeout=None)]
            while subscription.pending_msgs and len(batch) < BATCH:
                batch.append(await subscription.next_msg())
            await self._take(batch)

    async def _take(self, messages: list[Msg]) -> None:
        starts = [start for message in messages for start in self._starts(message)]
        try:
            for start in await admitted(self._engine, starts):
                self._engine.refuse(start)
        except (ThingwayError, StoreError) as error:
            log.warning("%d messages began no flow: %s", len(messages), error)

    def _starts(self, message: Msg) -> Iterator[Start]:
        access_key, topic = outside_topic(message.subject)
        if len(message.data) > LARGEST:
            log.info("a message of %s has more than %d bytes", access_key, LARGEST)
            return
        tenant = access_key.rpartition("@")[2]
        for flow, parameters in self._followed.topics.match(tenant, topic):
            if parameters.encoding == "Base64":
                payload = base64.b64encode(message.data).decode()
            else:
                payload = message.data.decode(errors="replace")
            cause = Cause(kind="MQTT", key=f"m-{uuid4().hex}")
            yield Start(flow, {"topic": topic, "payload": payload}, cause)
