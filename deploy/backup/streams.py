"""Streams in a backup: JetStream's own snapshots, and what came between them and the moment.

A snapshot keeps sequences, times and consumers. Those of streams that others read (`EVENTS`,
`DEAD`) are taken before the moment and completed by the messages up to it. `UPLINK` is the last
of them and needs no completion (decision 0026): its moment is that of the backup. Its consumer
is left out, so that everything in it is delivered again, to keys that are there already or not.

The stream goes on behind the last sequence of the moment, because sequences are part of the keys
of history: `advance` fills the gap with messages and takes them out again.
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

from deploy.backup.records import Message, StreamAt, StreamHead
from deploy.platform.errors import CommandError
from libs.common.bus import Bus, Outgoing
from libs.common.bus.retained_messages import delete_messages
from libs.common.bus.streams import DEAD, EVENTS, MQTT, RETAINED, STREAMS, UPLINK
from libs.common.bus.subjects import down_command

_MQTT_ONLY = ("$MQTT_out", "$MQTT_qos2in")
"""nats-server's own, made when the first MQTT client comes."""
SNAPSHOTS = (EVENTS, DEAD, *(one for one in STREAMS if one.startswith("$")), *_MQTT_ONLY, UPLINK)
"""In the order in which they are taken."""
COPIED = tuple(name for name in SNAPSHOTS if name != RETAINED)
"""Those that a backup copies: nobody reads retained messages, and they are not checked."""
COMPLETED = (EVENTS, DEAD)
FILLERS = {
    UPLINK: "thing.0.up.restored",
    EVENTS: "event.restored",
    DEAD: "dead.restored",
}
"""What stands for messages that are not there, until it is taken out; nobody listens yet."""
_CHUNK = 512 * 1024
"""Bytes of a message of a snapshot; the server sends 8 MiB ahead of what is confirmed."""
_MESSAGE_ID = "Nats-Msg-Id"
_API_SECONDS = 10.0
_CHUNK_SECONDS = 60.0
_FINISH_SECONDS = 600.0
"""In which the server reads a restored stream of 8 GiB."""
_TRIES = 10
"""Snapshots of `$MQTT_msgs` until one holds no write-only values."""
_TOGETHER = 500
"""Messages that are read or published at a time; `UPLINK` takes 10,000 of a subject."""


class _Fault(msgspec.Struct):
    description: str = ""
    err_code: int = 0


class _Answer(msgspec.Struct):
    error: _Fault | None = None
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}
    deliver_subject: str = ""


_NOT_FOUND = 10059
"""JetStream's code of a stream that is not there."""


async def _ask(client: Client, subject: str, body: Any, seconds: float = _API_SECONDS) -> _Answer:
    answer = await client.request(subject, msgspec.json.encode(body), timeout=seconds)
    return msgspec.json.decode(answer.data, type=_Answer)


def _checked(answer: _Answer, what: str) -> _Answer:
    if answer.error is not None:
        raise CommandError(f"NATS refuses {what}: {answer.error.description}")
    return answer


async def snapshot(client: Client, name: str) -> AsyncIterator[StreamHead | bytes]:
    """The head of a stream's snapshot and then its chunks; nothing when there is no stream.

    Raises `CommandError` when the server ends it early.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        wanted = {"deliver_subject": inbox, "chunk_size": _CHUNK, "no_consumers": name == UPLINK}
        answer = await _ask(client, f"$JS.API.STREAM.SNAPSHOT.{name}", wanted)
        if answer.error is not None and answer.error.err_code == _NOT_FOUND:
            return
        _checked(answer, f"a snapshot of {name}")
        yield StreamHead(name, answer.config, answer.state)
        while chunk := await _next(subscription, name):
            yield chunk.data
            if chunk.reply:
                await chunk.respond(b"")
    finally:
        await subscription.unsubscribe()


async def without_secrets(
    client: Client, take_back: Callable[[], Awaitable[bool]]
) -> AsyncIterator[StreamHead | bytes]:
    """The same of `$MQTT_msgs`, at a time when it holds no write-only values.

    `take_back` deletes these and tells whether there were any: then they may be in the snapshot,
    and the next one is tried. Raises `CommandError` when they come faster than that.
    """
    for _ in range(_TRIES):
        await take_back()
        head: StreamHead | None = None
        with TemporaryFile() as chunks:
            async for piece in snapshot(client, MQTT):
                if isinstance(piece, StreamHead):
                    head = piece
                else:
                    chunks.write(piece)
            if head is None:
                return
            if await take_back():
                continue
            yield head
            chunks.seek(0)
            while chunk := chunks.read(_CHUNK):
                yield chunk
        return
    raise CommandError("too many commands with write-only values are on their way: begin again")


async def take_back(bus: Bus, commands: Mapping[str, Collection[int]]) -> bool:
    """Delete the stored messages of commands, ids by serial number; whether there were any."""
    deleted = 0
    for sn, ids in commands.items():
        subject = f"$MQTT.msgs.{down_command(sn)}"
        deleted += await delete_messages(bus, MQTT, subject, partial(_names_command, ids))
    return deleted > 0


def _names_command(ids: Collection[int], payload: bytes) -> bool:
    """Return whether a message to a device is one of these commands."""
    try:
        return msgspec.json.decode(payload).get("commandId") in ids
    except (msgspec.DecodeError, AttributeError):
        return False


async def _next(subscription: Any, name: str) -> Msg | None:
    """The next chunk, None behind the last."""
    try:
        message: Msg = await subscription.next_msg(_CHUNK_SECONDS)
    except NatsTimeout as error:
        raise CommandError(f"the snapshot of {name} does not go on") from error
    if message.data:
        return message
    status = (message.headers or {}).get("Status", "")
    if status not in {"", "204"}:
        text = (message.headers or {}).get("Description", "")
        raise CommandError(f"NATS has ended the snapshot of {name}: {status} {text}")
    return None


async def state_of(bus: Bus, name: str) -> StreamAt | None:
    """Where a stream is now, None when it is not there."""
    try:
        state = (await bus.js.stream_info(name)).state
    except NotFoundError:
        return None
    return StreamAt(state.last_seq, state.first_seq, state.messages)


async def between(bus: Bus, name: str, after: int, last: int) -> AsyncIterator[list[Message]]:
    """The messages of a stream behind `after`, up to `last`."""
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
                found = await subscription.fetch(
                    min(_TOGETHER, last - reached), timeout=_API_SECONDS
                )
            except NatsTimeout as error:
                if (at := await state_of(bus, name)) is None or at.messages == 0:
                    return
                raise CommandError(f"messages of {name} cannot be read") from error
            sequences = [message.metadata.sequence.stream for message in found]
            reached = sequences[-1]
            yield [
                Message(sequence, message.subject, message.headers, message.data)
                for sequence, message in zip(sequences, found, strict=True)
                if sequence <= last
            ]
    finally:
        await subscription.unsubscribe()


class Restoring:
    """A stream that is restored from its snapshot, chunk by chunk."""

    def __init__(self, client: Client, head: StreamHead, replicas: int | None) -> None:
        self._client = client
        self._head = head
        self._replicas = replicas
        self._to = ""

    async def begin(self) -> None:
        """Announce it; raises `CommandError` when the stream is there."""
        config = self._head.config
        if self._replicas is not None:
            config = config | {"num_replicas": self._replicas}
        wanted = {"config": config, "state": self._head.state}
        subject = f"$JS.API.STREAM.RESTORE.{self._head.name}"
        answer = _checked(
            await _ask(self._client, subject, wanted), f"to restore {self._head.name}"
        )
        self._to = answer.deliver_subject

    async def chunk(self, data: bytes) -> None:
        """Hand over a piece."""
        answer = await self._client.request(self._to, data, timeout=_CHUNK_SECONDS)
        if answer.data:
            decoded = msgspec.json.decode(answer.data, type=_Answer)
            _checked(decoded, f"a piece of {self._head.name}")

    async def end(self) -> None:
        """Wait until the stream is there."""
        answer = await self._client.request(self._to, b"", timeout=_FINISH_SECONDS)
        decoded = msgspec.json.decode(answer.data, type=_Answer)
        _checked(decoded, f"what was restored of {self._head.name}")


async def replay(bus: Bus, name: str, messages: Sequence[Message]) -> None:
    """Publish what came behind the snapshot, each message under the sequence that it had."""
    last = (await existing(bus, name)).last
    run: list[Outgoing] = []
    for message in messages:
        if message.sequence <= last:
            continue  # the snapshot was still being taken when it came
        if message.sequence > last + 1:
            await bus.publish(run)
            run = []
            await advance(bus, name, message.sequence - 1)
        run.append(Outgoing(message.subject, message.payload, headers=_kept(message.headers)))
        last = message.sequence
    await bus.publish(run)


def _kept(headers: dict[str, str] | None) -> dict[str, str]:
    """What a message had of headers, without those that are for the server.

    Its id stays: what an outbox says again shortly after the restore is dropped as a copy.
    """
    return {
        key: value
        for key, value in (headers or {}).items()
        if key == _MESSAGE_ID or not key.startswith("Nats-")
    }


async def advance(bus: Bus, name: str, last: int) -> None:
    """Let the next message of a stream come behind `last`."""
    reached = (await existing(bus, name)).last
    filler = Outgoing(FILLERS[name], b"")
    while reached < last:
        some = min(last - reached, _TOGETHER)
        await bus.publish([filler] * some)
        await bus.js.purge_stream(name, subject=filler.subject)
        reached += some


async def existing(bus: Bus, name: str) -> StreamAt:
    """Where a stream is that has to be there."""
    at = await state_of(bus, name)
    if at is None:
        raise CommandError(f"there is no stream {name}")
    return at


async def compare(bus: Bus, name: str, wanted: StreamAt) -> None:
    """Raise `CommandError` unless a stream has what it had, but for what time has taken since."""
    found = await existing(bus, name)
    gone = max(found.first - wanted.first, 0)
    if found.last != wanted.last or found.messages < wanted.messages - gone:
        raise CommandError(
            f"{name} has {found.messages} messages up to {found.last}, the archive "
            f"{wanted.messages} up to {wanted.last}"
        )
