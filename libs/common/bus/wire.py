"""Many small messages in one write.

nats-py handles one message at a time: an acknowledgement costs 2 µs of it, a publish 5 to
23 µs. Joined into one buffer they cost 0.2 and 1 µs (measured, nats-py 2.16). The format
is the client protocol's (`PUB`, `HPUB`): docs.nats.io/reference/reference-protocols.
"""

from collections.abc import Iterable, Mapping
from math import inf

from nats.aio.client import Client
from nats.aio.msg import Msg

from libs.common.errors import TooLarge

PREAMBLE = b"NATS/1.0\r\n"


def ack_frame(message: Msg) -> bytes:
    """The frame that acknowledges one JetStream message."""
    return b"PUB %s 0\r\n\r\n" % message.reply.encode()


def publish_frame(
    subject: str,
    payload: bytes,
    headers: Mapping[str, str],
    reply: str = "",
    most: float = inf,
) -> bytes:
    """The frame that publishes one message; raises `TooLarge` for more than `most` bytes."""
    head = _head(headers)
    size = len(head) + len(payload)
    check_size(subject, size, most)
    start = b"%s %s" % (subject.encode(), reply.encode())
    if headers:
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (start, len(head), size, head, payload)
    return b"PUB %s %d\r\n%s\r\n" % (start, size, payload)


def size_of(payload: bytes, headers: Mapping[str, str] | None) -> int:
    """Bytes of a message as nats-server counts them: payload and headers."""
    return len(_head(headers)) + len(payload)


def check_size(subject: str, size: int, most: float) -> None:
    """Raise `TooLarge` for a message of more than `most` bytes."""
    if size > most:
        raise TooLarge(f"a message for {subject} has {size} bytes, the bus takes {most}")


def _head(headers: Mapping[str, str] | None) -> bytes:
    if not headers:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return PREAMBLE + lines.encode() + b"\r\n"


async def write_frames(client: Client, frames: Iterable[bytes]) -> None:
    """Write frames to the connection as one buffer.

    nats-py has no public call for this; `_send_command` is what its own `publish` uses.
    """
    await client._send_command(b"".join(frames))  # noqa: SLF001
    await client._flush_pending()  # noqa: SLF001


async def acknowledge(client: Client, messages: Iterable[Msg]) -> None:
    """Acknowledge JetStream messages, all in one write."""
    await write_frames(client, map(ack_frame, messages))


async def extend(client: Client, messages: Iterable[Msg]) -> None:
    """Begin the time to acknowledge JetStream messages anew, all in one write."""
    await write_frames(client, (b"PUB %s 4\r\n+WPI\r\n" % one.reply.encode() for one in messages))


async def hand_back(client: Client, replies: Mapping[str, float]) -> None:
    """Let JetStream messages come again, each after so many seconds; `replies` are theirs."""
    await write_frames(client, (_hand_back_frame(*one) for one in replies.items()))


def _hand_back_frame(reply: str, seconds: float) -> bytes:
    payload = b'-NAK {"delay": %d}' % int(seconds * 1e9)
    return b"PUB %s %d\r\n%s\r\n" % (reply.encode(), len(payload), payload)
