"""The streams, which the first process creates; their limits are in docs/reference/retention.md.

nats-server answers a QoS 1 publish (PUBACK) when the stream of `$MQTT.msgs.{subject}` has stored
the message. Usually, this stream is nats-server's `$MQTT_msgs`, which accepts all such subjects.
Here, `$MQTT_msgs` is created first, without the uplink subjects, and `UPLINK` has them. A PUBACK
therefore means "stored in UPLINK" (docs/decisions/0003). The other MQTT streams of nats-server are
created here too, because nats-server creates them without limits.
With partitions, nats-server maps messages of devices to `uplink.{partition}.{sn}.{channel}` by the
SN. Each partition has its own stream in addition to `UPLINK` (docs/explanation/scale.md).
With partitions of events, the platform publishes `events.{partitions}.{partition}.event.…` instead
of `event.…`. The stream `EVENTS_{partition}` stores the message under its usual subject and
repeats it there for current subscribers. `EVENTS` then copies what external readers need
(docs/decisions/0070).
"""

import logging
from collections.abc import Collection
from typing import Annotated, NamedTuple

import msgspec
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import (
    DiscardPolicy,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    SubjectTransform,
)
from nats.js.errors import BadRequestError, NotFoundError

from libs.common.bus.subjects import EXTERNAL_TOPICS, partitioned_uplink_subject

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400.0
STREAM_EXISTS_CODE = 10058
"""JetStream's error code for a stream that already exists."""
UPLINK, EVENTS, DEAD, MQTT = "UPLINK", "EVENTS", "DEAD", "$MQTT_msgs"
RETAINED, SESSIONS = "$MQTT_rmsgs", "$MQTT_sess"

ANY_EVENT = "event.>"

MAX_UPLINKS_PER_SUBJECT = 10_000
"""Messages of a subject that may wait in `UPLINK`; more are rejected.

A subject has the messages of one device, channel and protocol.
"""
SESSION_DAYS = 30
"""Days after which a persistent MQTT session without changes is deleted."""


def _retained_stream(
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
        max_age=days * DAY_SECONDS,
        max_bytes=gib * 1024**3,
        duplicate_window=window,
    )


STREAM_CONFIGS: dict[str, StreamConfig] = {
    MQTT: StreamConfig(
        name=MQTT,
        description="QoS 1 messages on their way to MQTT devices",
        subjects=[
            "$MQTT.msgs.thing.*.down",
            "$MQTT.msgs.thing.*.down.>",
            f"$MQTT.msgs.{EXTERNAL_TOPICS}",  # no consumer: only acknowledged
        ],
        retention=RetentionPolicy.INTEREST,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        max_bytes=256 * 1024**2,
        max_age=DAY_SECONDS,
        max_msgs_per_subject=100,
        discard_new_per_subject=True,
    ),
    RETAINED: StreamConfig(
        name=RETAINED,
        description="The last 16 retained MQTT messages, which no service reads",
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
        max_age=SESSION_DAYS * DAY_SECONDS,
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
        max_msgs_per_subject=MAX_UPLINKS_PER_SUBJECT,
        discard_new_per_subject=True,
        duplicate_window=120,
    ),
    EVENTS: _retained_stream(
        EVENTS, "Events; a public contract", ANY_EVENT, days=7, gib=8, window=120
    ),
    DEAD: _retained_stream(
        DEAD, "Rejected messages, with the reason", "dead.>", days=30, gib=1, window=3600
    ),
}


MAX_PARTITIONS = 16
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS)]
UPLINK_PARTITION_CONFIGS: dict[str, StreamConfig] = {
    f"{UPLINK}_{number}": STREAM_CONFIGS[UPLINK].evolve(
        name=f"{UPLINK}_{number}",
        description=f"{STREAM_CONFIGS[UPLINK].description}; partition {number}",
        subjects=[
            f"{prefix}{partitioned_uplink_subject('*', '*', number)}"
            for prefix in ("", "$MQTT.msgs.")
        ],
    )
    for number in range(MAX_PARTITIONS)
}
UPLINK_STREAM_NAMES = (UPLINK, *UPLINK_PARTITION_CONFIGS)


def restored_event_subject(stream: str) -> str:
    """Return the subject of messages that fill the gaps of a restored stream of events."""
    return f"events.restored.{stream}"


def event_partition_config(number: int, partitions: int) -> StreamConfig:
    """Return the configuration of one of several partitions of events.

    One that is not used any more (`number` >= `partitions`) accepts no events.
    """
    name = f"{EVENTS}_{number}"
    config = STREAM_CONFIGS[EVENTS].evolve(
        name=name,
        description=f"Events; partition {number}",
        subjects=[restored_event_subject(name)],
    )
    if number >= partitions:
        return config
    accepted = f"events.{partitions}.{number}.{ANY_EVENT}"
    return config.evolve(
        subjects=[accepted, restored_event_subject(name)],
        subject_transform=SubjectTransform(accepted, ANY_EVENT),
        republish=RePublish(ANY_EVENT, ANY_EVENT),
    )


EVENT_PARTITION_NAMES = tuple(f"{EVENTS}_{number}" for number in range(MAX_PARTITIONS))
EVENT_CONSUMERS = ("alarm-notifications", "alarms", "auth", "management", "workflow")
"""The durable consumers of services in the streams of events."""
COPY_SOURCE_HEADER = "Nats-Stream-Source"
"""The header of an event that `EVENTS` has copied from a partition."""
_PARTITIONS_KEY, _CREATED_PARTITIONS_KEY = "partitions", "created-partitions"
"""Metadata of `EVENTS`: the partitions in use, and those that were ever created."""
_ALL_STREAM_CONFIGS = STREAM_CONFIGS | UPLINK_PARTITION_CONFIGS


def uplink_stream_names(partitions: int) -> list[str]:
    """Return the streams of device messages: `UPLINK`, and one per partition if several."""
    return [UPLINK, *list(UPLINK_PARTITION_CONFIGS)[: partitions if partitions > 1 else 0]]


class EventPartitions(NamedTuple):
    """The partitions of events."""

    used: int
    """The number of partitions in use; with 1, only `EVENTS` is."""
    created: int
    """The number of partitions that were ever created, 0 for none."""

    @property
    def streams(self) -> list[str]:
        """Return the streams with events."""
        return [EVENTS, *EVENT_PARTITION_NAMES[: self.created]]


async def read_event_partitions(js: JetStreamContext) -> EventPartitions:
    """Return the partitions of events, which the metadata of `EVENTS` has."""
    metadata = (await js.stream_info(EVENTS)).config.metadata or {}
    return EventPartitions(
        int(metadata.get(_PARTITIONS_KEY, 1)), int(metadata.get(_CREATED_PARTITIONS_KEY, 0))
    )


async def set_event_partitions(
    js: JetStreamContext, replicas: int, partitions: int
) -> EventPartitions:
    """Set the number of partitions of events; return the partitions.

    While it changes, no stream accepts events that are published for another number. Publishers
    then read the metadata of `EVENTS` and publish again.
    """
    before = await read_event_partitions(js)
    used, created = before
    if used == partitions:
        return before
    active = partitions if partitions > 1 else 0
    for number in range(max(active, created)):
        config = event_partition_config(number, active).evolve(num_replicas=replicas)
        if await _stream_exists(js, EVENT_PARTITION_NAMES[number]):
            current = (await js.stream_info(EVENT_PARTITION_NAMES[number])).config
            await js.update_stream(config.evolve(num_replicas=current.num_replicas))
        else:
            await js.add_stream(config)
    current = (await js.stream_info(EVENTS)).config
    counts = {_PARTITIONS_KEY: str(partitions), _CREATED_PARTITIONS_KEY: str(max(active, created))}
    await js.update_stream(
        current.evolve(
            subjects=[restored_event_subject(EVENTS) if active else ANY_EVENT],
            metadata={**(current.metadata or {}), **counts},
        )
    )
    log.info("events are stored in %d partitions instead of %d", partitions, used)
    return EventPartitions(partitions, max(active, created))


_LIMIT_FIELDS = ("max_age", "max_msgs", "max_bytes")
_SUBJECT_LIMIT_FIELDS = ("max_msgs_per_subject", "discard_new_per_subject")


async def add_missing_stream_settings(js: JetStreamContext, replicas: int) -> None:
    """Add missing limits, subjects and replicas to existing streams.

    Replicas are never removed: an operator may want more for a stream.
    """
    for name, wanted_config in _ALL_STREAM_CONFIGS.items():
        if name in UPLINK_PARTITION_CONFIGS and not await _stream_exists(js, name):
            continue
        config = (await js.stream_info(name)).config
        lacking = {bound for bound in _LIMIT_FIELDS if (getattr(config, bound) or 0) <= 0}
        lacking |= {bound for bound in _SUBJECT_LIMIT_FIELDS if not config.discard_new_per_subject}
        changes = {bound: value for bound in lacking if (value := getattr(wanted_config, bound))}
        missing = set(wanted_config.subjects or ()) - set(config.subjects or ())
        if missing and not (
            name == EVENTS and config.metadata and _PARTITIONS_KEY in config.metadata
        ):
            changes["subjects"] = [*(config.subjects or ()), *sorted(missing)]
        if (config.num_replicas or 1) < replicas:
            changes["num_replicas"] = replicas
        if any(getattr(config, bound) != value for bound, value in changes.items()):
            await js.update_stream(config.evolve(**changes))
            log.info("stream %s is changed: %s", name, changes)


async def create_missing_streams(
    js: JetStreamContext, replicas: int, names: Collection[str] = STREAM_CONFIGS
) -> None:
    """Create missing streams, each on `replicas` servers; leave existing ones unchanged."""
    for name, config in _ALL_STREAM_CONFIGS.items():
        if name not in names or await _stream_exists(js, name):
            continue
        try:
            await js.add_stream(config.evolve(num_replicas=replicas))
        except BadRequestError as error:
            if error.err_code != STREAM_EXISTS_CODE:
                raise
            log.info("stream %s was created by another process: %s", name, error.description)


async def create_uplink_streams(js: JetStreamContext, replicas: int, partitions: int) -> list[str]:
    """Create the streams of `partitions`, none for 1; return the existing streams.

    Streams of former partitions are included, so that their messages are processed as well.
    """
    if partitions > 1:
        await create_missing_streams(js, replicas, list(UPLINK_PARTITION_CONFIGS)[:partitions])
    return await find_uplink_streams(js)


async def find_uplink_streams(js: JetStreamContext, partitions: int = 1) -> list[str]:
    """Return the streams of `partitions`, and those of former partitions that exist."""
    used = uplink_stream_names(partitions)
    return [name for name in UPLINK_STREAM_NAMES if name in used or await _stream_exists(js, name)]


async def _stream_exists(js: JetStreamContext, name: str) -> bool:
    """Return whether a stream exists.

    Raises `TimeoutError` with the name of the stream if nats-server does not answer.
    """
    try:
        await js.stream_info(name)
    except NotFoundError:
        return False
    except NatsError as error:
        raise TimeoutError(f"stream {name} does not answer: {error}") from error
    return True
