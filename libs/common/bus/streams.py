"""The streams, which the first process that starts creates (see the architecture page).

nats-server answers a QoS 1 publish (PUBACK) when the stream of `$MQTT.msgs.{subject}` has stored
the message. This is its own stream `$MQTT_msgs`, unless another stream has the subject. `UPLINK`
therefore has the uplink subjects, and `$MQTT_msgs` is created first with only the others, so that a
PUBACK means "stored in UPLINK" (docs/decisions/0003). The other MQTT streams of nats-server are
created here too, because nats-server creates them without limits.
With partitions, nats-server maps messages of devices to `uplink.{partition}.{sn}.{channel}` by the
SN. Each partition has its own stream in addition to `UPLINK` (docs/explanation/scale.md).
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
"""JetStream's error code for a stream that already exists."""
UPLINK, EVENTS, DEAD, MQTT = "UPLINK", "EVENTS", "DEAD", "$MQTT_msgs"
RETAINED, SESSIONS = "$MQTT_rmsgs", "$MQTT_sess"

UNSTORED = 10_000
"""Messages per device and channel that may wait in `UPLINK`; more are rejected."""
SESSION_DAYS = 30
"""Days after which an unchanged persistent MQTT session is deleted."""


def _kept(
    name: str, description: str, subject: str, *, days: int, gib: int, window: float
) -> StreamConfig:
    """Return a stream that drops its oldest messages; `window` is its duplicate window, s."""
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
            f"$MQTT.msgs.{OUTSIDE_TOPICS}",  # no consumer: only acknowledged
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
        description="Messages of devices that are not stored yet",
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
    EVENTS: _kept(EVENTS, "Events; a public contract", "event.>", days=7, gib=8, window=120),
    DEAD: _kept(DEAD, "Rejected messages, with the reason", "dead.>", days=30, gib=1, window=3600),
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
    """Return the streams of device messages: `UPLINK`, and one per partition if several."""
    return [UPLINK, *list(PARTITIONS)[: partitions if partitions > 1 else 0]]


_BOUNDS = ("max_age", "max_msgs", "max_bytes")
_PER_SUBJECT = ("max_msgs_per_subject", "discard_new_per_subject")


async def complete_streams(js: JetStreamContext, replicas: int) -> None:
    """Add missing limits, subjects and replicas to existing streams.

    Replicas are never removed: an operator may want more for a stream.
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
    """Create missing streams, each on `replicas` servers; leave existing ones unchanged."""
    for name, config in _KNOWN.items():
        if name not in names or await _is_there(js, name):
            continue
        try:
            await js.add_stream(config.evolve(num_replicas=replicas))
        except BadRequestError as error:
            if error.err_code != NAME_IN_USE:
                raise
            log.info("stream %s was created by another process: %s", name, error.description)


async def ensure_uplinks(js: JetStreamContext, replicas: int, partitions: int) -> list[str]:
    """Create the streams of `partitions`, none for 1; return the existing streams.

    Streams of former partitions are included, so that their messages are processed as well.
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
