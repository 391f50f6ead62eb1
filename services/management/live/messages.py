"""What live updates hear on the bus."""

import logging
from uuid import uuid4

from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus
from libs.common.bus.wire import acknowledge
from libs.common.changes import KNOWN_SUBJECTS, SUBJECTS, read_change, read_known
from libs.common.decoding import INVALID_JSON
from libs.common.telemetry.tracing import batch, trace_of
from services.management.live.hub import Hub

log = logging.getLogger(__name__)


def hear(bus: Bus, hub: Hub) -> BatchConsumer:
    """The consumer that tells the hub of every change from now on, each replica its own."""

    async def tell(messages: list[Msg]) -> None:
        with batch("live batch", [trace_of(message.headers) for message in messages]):
            for message in messages:
                try:
                    _tell(hub, message)
                except INVALID_JSON as error:
                    log.warning("%s is not readable: %s", message.subject, error)
            await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable=f"live-{uuid4().hex}",
        handle=tell,
        batch=500,
        concurrency=1,
        subjects=(*SUBJECTS, *KNOWN_SUBJECTS),
        fleeting=True,
    )


def _tell(hub: Hub, message: Msg) -> None:
    """Pages over MQTT hear which entities changed; sockets also hear values that were reported."""
    if message.subject.endswith((".reported", ".event")):
        hub.tell(read_change(message.data))
    else:
        hub.exchange.tell(read_known(message.subject, message.data))
