"""What listeners hear on the bus."""

import logging

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus
from libs.common.bus.hops import hops_of
from libs.common.bus.wire import acknowledge
from libs.common.changes import SUBJECTS, read_change
from services.workflow.engine.runner import Start
from services.workflow.triggers.admission import Engine, admitted
from services.workflow.triggers.listeners.following import FollowedIndex
from services.workflow.triggers.listeners.service import starts_of

BATCH = 200
"""Events that are taken at a time; other replicas take the next ones."""
ACK_WAIT = 60.0
"""Seconds after which an event that is not recorded goes to another replica."""

log = logging.getLogger(__name__)


def listen(bus: Bus, followed: FollowedIndex, engine: Engine) -> BatchConsumer:
    """The consumer that all replicas share; an event is acknowledged when its runs are recorded."""

    async def take(messages: list[Msg]) -> None:
        await followed.ready.wait()
        starts: list[Start] = []
        for message in messages:
            try:
                change = read_change(message.data)
            except msgspec.DecodeError as error:
                log.warning("%s is not readable: %s", message.subject, error)
            else:
                starts += starts_of(followed.index, change, hops_of(message.headers))
        await admitted(engine, starts)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable="workflow",
        handle=take,
        batch=BATCH,
        ack_wait=ACK_WAIT,
        subjects=SUBJECTS,
        from_now=True,
    )
