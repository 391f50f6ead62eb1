"""The streams, as the architecture page has them; created at start by whoever comes first.

nats-server answers a QoS 1 publish (PUBACK) when the stream that holds `$MQTT.msgs.{subject}`
has stored it. That stream is its own `$MQTT_msgs` unless another one takes the subject, so
`UPLINK` takes it, and `$MQTT_msgs` is made first and narrow: a PUBACK then means "in UPLINK"
(docs/decisions/0003).
"""

import logging

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

log = logging.getLogger(__name__)

DAY = 86_400.0
NAME_IN_USE = 10058
"""JetStream's code for a stream that is there already."""
UPLINK, EVENTS, DEAD, MQTT = "UPLINK", "EVENTS", "DEAD", "$MQTT_msgs"

STREAMS: dict[str, StreamConfig] = {
    MQTT: StreamConfig(
        name=MQTT,
        description="QoS 1 messages on their way to MQTT devices",
        subjects=["$MQTT.msgs.thing.*.down", "$MQTT.msgs.thing.*.down.>"],
        retention=RetentionPolicy.INTEREST,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        max_bytes=256 * 1024**2,
    ),
    UPLINK: StreamConfig(
        name=UPLINK,
        description="What devices said and nobody has stored yet",
        subjects=["thing.*.up.>", "$MQTT.msgs.thing.*.up.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        allow_atomic=True,
        max_msgs=20_000_000,
        max_bytes=8 * 1024**3,
        duplicate_window=120,
    ),
    EVENTS: StreamConfig(
        name=EVENTS,
        description="What happened; a public contract",
        allow_atomic=True,
        subjects=["event.>"],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        storage=StorageType.FILE,
        max_age=7 * DAY,
        max_bytes=8 * 1024**3,
        duplicate_window=120,
    ),
    DEAD: StreamConfig(
        name=DEAD,
        description="What was refused, and why",
        allow_atomic=True,
        subjects=["dead.>"],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        storage=StorageType.FILE,
        max_age=30 * DAY,
        max_bytes=1024**3,
        duplicate_window=3600,
    ),
}


async def ensure_streams(js: JetStreamContext, replicas: int = 1) -> None:
    """Create missing streams; leave the limits of existing ones to the operator."""
    for name, config in STREAMS.items():
        try:
            await js.stream_info(name)
        except NotFoundError:
            try:
                await js.add_stream(config.evolve(num_replicas=replicas))
            except BadRequestError as error:
                if error.err_code != NAME_IN_USE:
                    raise
                log.info("stream %s was made by another process: %s", name, error.description)
