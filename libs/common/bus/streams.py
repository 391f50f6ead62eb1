"""The streams, as the architecture page has them; created at start by whoever comes first.

nats-server answers a QoS 1 publish (PUBACK) when the stream that holds `$MQTT.msgs.{subject}`
has stored it. That stream is its own `$MQTT_msgs` unless another one takes the subject, so
`UPLINK` takes it, and `$MQTT_msgs` is made first and narrow: a PUBACK then means "in UPLINK"
(docs/decisions/0003). nats-server's other streams for MQTT are made here too, because its own have
no bounds.

With partitions, nats-server maps what devices say to `uplink.{partition}.{sn}.{channel}`, by the
SN, and each partition has a stream of its own beside `UPLINK` (docs/explanation/scale.md).
"""

import logging
from collections.abc import Collection
from typing import Annotated

import msgspec
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from libs.common.bus.subjects import OUTSIDE_TOPICS, partitioned

log = logging.getLogger(__name__)

DAY = 86_400.0
NAME_IN_USE = 10058
"""JetStream's code for a stream that is there already."""
UPLINK, EVENTS, DEAD, MQTT = "UPLINK", "EVENTS", "DEAD", "$MQTT_msgs"
RETAINED, SESSIONS = "$MQTT_rmsgs", "$MQTT_sess"

UNSTORED = 10_000
"""Messages of one device on one channel that may wait in `UPLINK`; more are refused."""
SESSION_DAYS = 30
"""Days after which a persistent MQTT session that did not change is forgotten."""


def _kept(
    name: str, description: str, subject: str, *, days: int, gib: int, window: float
) -> StreamConfig:
    """Return a stream that drops the oldest; `window` is the time to drop copies, in seconds."""
    return StreamConfig(
        name=name,
        description=description,
        allow_atomic=True,
        subjects=[subject],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        storage=StorageType.FILE,
        max_age=days * DAY,
        max_bytes=gib * 1024**3,
        duplicate_window=window,
    )


STREAMS: dict[str, StreamConfig] = {
    MQTT: StreamConfig(
        name=MQTT,
        description="QoS 1 messages on their way to MQTT devices",
        subjects=[
            "$MQTT.msgs.thing.*.down",
            "$MQTT.msgs.thing.*.down.>",
            f"$MQTT.msgs.{OUTSIDE_TOPICS}",  # nobody takes them from here: they are acknowledged
        ],
        retention=RetentionPolicy.INTEREST,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        max_bytes=256 * 1024**2,
        max_age=DAY,
        max_msgs_per_subject=100,
        discard_new_per_subject=True,
    ),
    RETAINED: StreamConfig(
        name=RETAINED,
        description="Retained messages, which this platform does not offer: the last few",
        subjects=["$MQTT.rmsgs.>"],
        storage=StorageType.FILE,
        max_msgs=16,
        max_msgs_per_subject=1,
        max_age=3600.0,
    ),
    SESSIONS: StreamConfig(
        name=SESSIONS,
        description="Persistent sessions of MQTT devices",
        subjects=["$MQTT.sess.>"],
        storage=StorageType.FILE,
        max_msgs_per_subject=1,
        max_age=SESSION_DAYS * DAY,
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
        max_msgs_per_subject=UNSTORED,
        discard_new_per_subject=True,
        duplicate_window=120,
    ),
    EVENTS: _kept(EVENTS, "What happened; a public contract", "event.>", days=7, gib=8, window=120),
    DEAD: _kept(DEAD, "What was refused, and why", "dead.>", days=30, gib=1, window=3600),
}


MOST_PARTITIONS = 16
Partitions = Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTITIONS)]
PARTITIONS: dict[str, StreamConfig] = {
    f"{UPLINK}_{number}": STREAMS[UPLINK].evolve(
        name=f"{UPLINK}_{number}",
        description=f"{STREAMS[UPLINK].description}; partition {number}",
        subjects=[f"{prefix}{partitioned('*', '*', number)}" for prefix in ("", "$MQTT.msgs.")],
    )
    for number in range(MOST_PARTITIONS)
}
UPLINKS = (UPLINK, *PARTITIONS)
_KNOWN = STREAMS | PARTITIONS


def uplink_streams(partitions: int) -> list[str]:
    """The streams of what devices say: one, and so many more with more than one partition."""
    return [UPLINK, *list(PARTITIONS)[: partitions if partitions > 1 else 0]]


_BOUNDS = ("max_age", "max_msgs", "max_bytes")
_PER_SUBJECT = ("max_msgs_per_subject", "discard_new_per_subject")


async def complete_streams(js: JetStreamContext, replicas: int) -> None:
    """Give streams that are there the bounds and subjects that they lack, and enough replicas.

    Nothing takes replicas away: an operator may want more of a stream.
    """
    for name, wanted in _KNOWN.items():
        if name in PARTITIONS and not await _is_there(js, name):
            continue
        held = (await js.stream_info(name)).config
        lacking = {one for one in _BOUNDS if (getattr(held, one) or 0) <= 0}
        lacking |= {one for one in _PER_SUBJECT if not held.discard_new_per_subject}
        changes = {one: value for one in lacking if (value := getattr(wanted, one))}
        if missing := set(wanted.subjects or ()) - set(held.subjects or ()):
            changes["subjects"] = [*(held.subjects or ()), *sorted(missing)]
        if (held.num_replicas or 1) < replicas:
            changes["num_replicas"] = replicas
        if any(getattr(held, one) != value for one, value in changes.items()):
            await js.update_stream(held.evolve(**changes))
            log.info("stream %s is changed: %s", name, changes)


async def ensure_streams(
    js: JetStreamContext, replicas: int, names: Collection[str] = STREAMS
) -> None:
    """Create missing streams, each on `replicas` servers; leave existing ones as they are."""
    for name, config in _KNOWN.items():
        if name not in names or await _is_there(js, name):
            continue
        try:
            await js.add_stream(config.evolve(num_replicas=replicas))
        except BadRequestError as error:
            if error.err_code != NAME_IN_USE:
                raise
            log.info("stream %s was made by another process: %s", name, error.description)


async def ensure_uplinks(js: JetStreamContext, replicas: int, partitions: int) -> list[str]:
    """Create the streams of so many partitions, none for one; return those that there are.

    What a partition holds that is no longer asked for is stored all the same.
    """
    if partitions > 1:
        await ensure_streams(js, replicas, list(PARTITIONS)[:partitions])
    return [name for name in UPLINKS if await _is_there(js, name)]


async def _is_there(js: JetStreamContext, name: str) -> bool:
    try:
        await js.stream_info(name)
    except NotFoundError:
        return False
    return True
