"""Backup of NATS: stream snapshots, and the messages stored after each snapshot.

A snapshot keeps sequences, times and consumers. The snapshots of events and `DEAD` precede the
moment of the backup; the messages up to the moment complete them. The snapshots of `UPLINK` and its
partitions come last and need no completion (decision 0026): the start of the first is the moment.
They leave out the consumers, so all messages are delivered again; the history ignores keys that
already exist.

History keys contain stream sequences. Therefore a restored stream must continue after the last
sequence of the moment: `advance_sequence` fills the gap with messages and deletes them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from deploy.backup.records import StreamHead, StreamMessage, StreamPosition
from deploy.platform.admin import JetStreamReply, call_jetstream
from deploy.platform.errors import CommandError
from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.stored_messages import delete_messages
from libs.common.bus.streams import (
    ANY_EVENT,
    DEAD,
    EVENT_PARTITION_NAMES,
    EVENTS,
    MQTT,
    RETAINED,
    STREAM_CONFIGS,
    UPLINK,
    UPLINK_PARTITION_CONFIGS,
    UPLINK_STREAM_NAMES,
    restored_event_subject,
)
from libs.common.bus.subjects import command_subject, partitioned_uplink_subject, uplink_subject

_QOS_2_STREAMS = ("$MQTT_out", "$MQTT_qos2in")
"""Streams for QoS 2, which is off: empty, and in memory under `thingway up`."""
STREAMS_WITH_LATER_MESSAGES = (EVENTS, *EVENT_PARTITION_NAMES, DEAD)
_MQTT_STREAMS = (*(name for name in STREAM_CONFIGS if name.startswith("$")), *_QOS_2_STREAMS)
ALL_STREAMS = (*STREAMS_WITH_LATER_MESSAGES, *_MQTT_STREAMS, *UPLINK_STREAM_NAMES)
"""All streams; those of `BACKED_UP_STREAMS` in the order of their snapshots."""
BACKED_UP_STREAMS = tuple(name for name in ALL_STREAMS if name not in (RETAINED, *_QOS_2_STREAMS))
"""Streams of a backup: all but those of QoS 2 and of retained messages, which no service reads."""
FILLER_SUBJECT_BY_STREAM = {
    **{name: restored_event_subject(name) for name in EVENT_PARTITION_NAMES},
    **{
        name: partitioned_uplink_subject("0", "restored", number)
        for number, name in enumerate(UPLINK_PARTITION_CONFIGS)
    },
    UPLINK: uplink_subject("0", "restored.0"),
    EVENTS: "event.restored",
    DEAD: "dead.restored",
}
"""Subjects of the messages that `advance_sequence` publishes; no service runs yet.

The subject of `UPLINK` has five tokens, because nats-server maps four tokens to partitions.
"""
_CHUNK_BYTES = 512 * 1024
"""Maximum bytes per chunk of a snapshot; the server sends up to 8 MiB before an acknowledgement."""
_MESSAGE_ID_HEADER = "Nats-Msg-Id"
_API_SECONDS = 10.0
_CHUNK_SECONDS = 60.0
_FINISH_SECONDS = 600.0
"""Maximum seconds in which the server must load a restored stream; 8 GiB are possible."""
_MAX_SNAPSHOT_ATTEMPTS = 10
"""Maximum attempts to take a snapshot of `$MQTT_msgs` without write-only values."""
_BATCH_MESSAGES = 500
"""Maximum messages per fetch or publish; `UPLINK` stores at most 10,000 per subject."""


async def _request(
    client: Client, subject: str, body: Any, seconds: float = _API_SECONDS
) -> JetStreamReply:
    answer = await client.request(subject, msgspec.json.encode(body), timeout=seconds)
    return msgspec.json.decode(answer.data, type=JetStreamReply)


def _require_success(answer: JetStreamReply, what: str) -> JetStreamReply:
    if answer.error is not None:
        raise CommandError(f"NATS rejects {what}: {answer.error.description}")
    return answer


async def snapshot_stream(client: Client, name: str) -> AsyncIterator[StreamHead | bytes]:
    """Yield the head of a stream's snapshot and then its chunks.

    Yields nothing if the stream does not exist. Raises `CommandError` if the server aborts the
    snapshot.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        # A cluster does not answer a request for the snapshot of a missing stream.
        if (await call_jetstream(client, f"STREAM.INFO.{name}")).is_stream_missing:
            return
        body = {
            "deliver_subject": inbox,
            "chunk_size": _CHUNK_BYTES,
            "no_consumers": name in UPLINK_STREAM_NAMES,
        }
        answer = await call_jetstream(client, f"STREAM.SNAPSHOT.{name}", body)
        _require_success(answer, f"a snapshot of {name}")
        yield StreamHead(name, answer.config, answer.state)
        while chunk := await _next_chunk(subscription, name):
            yield chunk.data
            if chunk.reply:
                await chunk.respond(b"")
    finally:
        await subscription.unsubscribe()


async def snapshot_without_write_only(
    client: Client, delete_write_only: Callable[[], Awaitable[bool]]
) -> AsyncIterator[StreamHead | bytes]:
    """Yield a snapshot of `$MQTT_msgs` that contains no write-only values.

    `delete_write_only` deletes messages with write-only values and returns whether any existed. If
    any existed after the snapshot, the snapshot may contain them and is repeated. Raises
    `CommandError` after `_MAX_SNAPSHOT_ATTEMPTS`.
    """
    for _ in range(_MAX_SNAPSHOT_ATTEMPTS):
        await delete_write_only()
        head: StreamHead | None = None
        with TemporaryFile() as chunks:
            async for piece in snapshot_stream(client, MQTT):
                if isinstance(piece, StreamHead):
                    head = piece
                else:
                    chunks.write(piece)
            if head is None:
                return
            if await delete_write_only():
                continue
            yield head
            chunks.seek(0)
            while chunk := chunks.read(_CHUNK_BYTES):
                yield chunk
        return
    raise CommandError(
        "too many commands with write-only values are in progress: start the backup again"
    )


async def delete_command_messages(bus: Bus, commands: Mapping[str, Collection[int]]) -> bool:
    """Delete MQTT messages of commands (ids by SN); return whether any existed."""
    deleted = 0
    for sn, ids in commands.items():
        subject = f"$MQTT.msgs.{command_subject(sn)}"
        deleted += await delete_messages(bus, MQTT, subject, partial(_contains_command, ids))
    return deleted > 0


def _contains_command(ids: Collection[int], payload: bytes) -> bool:
    try:
        return msgspec.json.decode(payload).get("commandId") in ids
    except (msgspec.DecodeError, AttributeError):
        return False


async def _next_chunk(subscription: Any, name: str) -> Msg | None:
    """Return the next chunk of a snapshot; None after the last."""
    try:
        message: Msg = await subscription.next_msg(_CHUNK_SECONDS)
    except NatsTimeout as error:
        raise CommandError(f"NATS stopped sending the snapshot of {name}") from error
    if message.data:
        return message
    status = (message.headers or {}).get("Status", "")
    if status not in {"", "204"}:
        text = (message.headers or {}).get("Description", "")
        raise CommandError(f"NATS aborted the snapshot of {name}: {status} {text}")
    return None


async def read_position(bus: Bus, name: str) -> StreamPosition | None:
    """Return the position of a stream; None if it does not exist."""
    try:
        state = (await bus.js.stream_info(name)).state
    except NotFoundError:
        return None
    return StreamPosition(state.last_seq, state.first_seq, state.messages)


def is_partition_copy(head: StreamHead) -> bool:
    """Return whether the stream only contains copies of events in partitions."""
    return head.name == EVENTS and ANY_EVENT not in head.config["subjects"]


async def read_messages(
    bus: Bus, name: str, after: int, last: int
) -> AsyncIterator[list[StreamMessage]]:
    """Yield the messages of a stream after sequence `after` up to `last`, in batches."""
    if after >= last:
        return
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=after + 1,
        inactive_threshold=_CHUNK_SECONDS,
    )
    subscription = await bus.js.pull_subscribe("", stream=name, config=config)
    try:
        reached = after
        while reached < last:
            try:
                messages = await subscription.fetch(
                    min(_BATCH_MESSAGES, last - reached), timeout=_API_SECONDS
                )
            except NatsTimeout as error:
                if (at := await read_position(bus, name)) is None or at.messages == 0:
                    return
                raise CommandError(f"cannot read messages of {name}") from error
            sequences = [message.metadata.sequence.stream for message in messages]
            reached = sequences[-1]
            yield [
                StreamMessage(sequence, message.subject, message.headers, message.data)
                for sequence, message in zip(sequences, messages, strict=True)
                if sequence <= last
            ]
    finally:
        await subscription.unsubscribe()


class StreamRestore:
    """The restore of one stream from its snapshot."""

    def __init__(self, client: Client, head: StreamHead, replicas: int | None) -> None:
        self._client = client
        self._head = head
        self._replicas = replicas
        self._to = ""

    async def start(self) -> None:
        """Start the restore; raise `CommandError` if the stream exists."""
        config = self._head.config
        if self._replicas is not None:
            config = config | {"num_replicas": self._replicas}
        body = {"config": config, "state": self._head.state}
        subject = f"STREAM.RESTORE.{self._head.name}"
        answer = _require_success(
            await call_jetstream(self._client, subject, body), f"the restore of {self._head.name}"
        )
        self._to = answer.deliver_subject

    async def send_chunk(self, data: bytes) -> None:
        """Send a chunk of the snapshot."""
        answer = await self._client.request(self._to, data, timeout=_CHUNK_SECONDS)
        if answer.data:
            decoded = msgspec.json.decode(answer.data, type=JetStreamReply)
            _require_success(decoded, f"a chunk of {self._head.name}")

    async def finish(self) -> None:
        """Finish the restore and wait until the server has loaded the stream."""
        answer = await self._client.request(self._to, b"", timeout=_FINISH_SECONDS)
        decoded = msgspec.json.decode(answer.data, type=JetStreamReply)
        _require_success(decoded, f"the restored stream {self._head.name}")


async def publish_missing_messages(bus: Bus, name: str, messages: Sequence[StreamMessage]) -> None:
    """Publish messages that the snapshot lacks; each keeps its sequence number."""
    transform = (await bus.js.stream_info(name)).config.subject_transform
    prefix = transform.src.removesuffix(ANY_EVENT) if transform else ""
    last = (await require_position(bus, name)).last
    batch: list[OutgoingMessage] = []
    for message in messages:
        if message.sequence <= last:
            continue  # the snapshot already contains it
        if message.sequence > last + 1:
            await bus.publish(batch)
            batch = []
            await advance_sequence(bus, name, message.sequence - 1)
        batch.append(
            OutgoingMessage(
                prefix + message.subject,
                message.payload,
                headers=_remove_server_headers(message.headers),
            )
        )
        last = message.sequence
    await bus.publish(batch)


def _remove_server_headers(headers: dict[str, str] | None) -> dict[str, str]:
    """Return the headers of a message without those that instruct the server.

    The message id stays, so that an outbox entry published again after the restore is dropped as a
    duplicate.
    """
    return {
        key: value
        for key, value in (headers or {}).items()
        if key == _MESSAGE_ID_HEADER or not key.startswith("Nats-")
    }


async def advance_sequence(bus: Bus, name: str, last: int) -> None:
    """Publish and delete messages until the last sequence is at least `last`."""
    reached = (await require_position(bus, name)).last
    filler = OutgoingMessage(FILLER_SUBJECT_BY_STREAM[name], b"")
    while reached < last:
        count = min(last - reached, _BATCH_MESSAGES)
        await bus.publish([filler] * count)
        await bus.js.purge_stream(name, subject=filler.subject)
        reached += count


async def require_position(bus: Bus, name: str) -> StreamPosition:
    """Return the position of a stream; raise `CommandError` if it does not exist."""
    at = await read_position(bus, name)
    if at is None:
        raise CommandError(f"NATS has no stream {name}")
    return at


async def compare_stream(bus: Bus, name: str, expected: StreamPosition) -> None:
    """Raise `CommandError` unless a stream is complete up to the expected end.

    Expired messages may be missing. The number of reports in `UPLINK` is not compared, because it
    changes during a snapshot.
    """
    position = await require_position(bus, name)
    expired = max(position.first - expected.first, 0)
    is_short = (
        name in STREAMS_WITH_LATER_MESSAGES and position.messages < expected.messages - expired
    )
    if position.last != expected.last or is_short:
        raise CommandError(
            f"{name} has {position.messages} messages up to {position.last}, the archive "
            f"{expected.messages} up to {expected.last}"
        )
