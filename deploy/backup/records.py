"""What an archive consists of, in the order in which it is written.

`Head`, `Secrets`; for each stream `StreamHead`, its `Chunk`s and `StreamEnd`; `Moment`; for each
stream `Messages` that came after its snapshot and before the moment; for each collection
`CollectionHead`, its `Documents` and `CollectionEnd`; `End`. An archive of a tenant has `Sequences`
behind its moment, and no streams.
"""

from typing import Any

import msgspec

FORMAT = 1


class _Base(msgspec.Struct, frozen=True, tag=True):
    """Of all records."""


class Head(_Base, frozen=True):
    """What this is a backup of."""

    version: str
    """Of the platform that made it."""
    started: int
    """ms."""
    tenant: str | None = None
    """The only one that is in it; None: the whole installation."""
    format: int = FORMAT


class Secrets(_Base, frozen=True):
    """The installation's `state.json`; of a tenant's archive what its seals are opened with."""

    state: bytes


class StreamHead(_Base, frozen=True):
    """A stream: its configuration and state, as JetStream's API has them."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]


class Chunk(_Base, frozen=True):
    """A piece of JetStream's own snapshot of the stream that was begun last."""

    data: bytes


class StreamEnd(_Base, frozen=True):
    """The snapshot is complete."""


class StreamAt(msgspec.Struct, frozen=True):
    """A stream at the moment."""

    last: int
    """Sequence of its last message: the stream goes on behind it."""
    first: int
    messages: int


class Moment(_Base, frozen=True):
    """When the backup is of."""

    at: int
    """ms: everything acknowledged before is in it."""
    cluster_time: tuple[int, int] | None
    """MongoDB's time that all databases are read at: seconds and ordinal."""
    streams: dict[str, StreamAt]


class Sequences(_Base, frozen=True):
    """Where the sequences of ids end (`{service}.{name}`), in an archive of a tenant."""

    ends: dict[str, int]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A message of a stream."""

    sequence: int
    subject: str
    headers: dict[str, str] | None
    payload: bytes


class Messages(_Base, frozen=True):
    """Messages of a stream behind its snapshot."""

    stream: str
    messages: list[Message]


class CollectionHead(_Base, frozen=True):
    """A collection; `options` and `indexes` are BSON, as MongoDB lists them."""

    database: str
    name: str
    options: bytes
    indexes: bytes
    """`{indexes: […]}` without that of `_id`."""


class Documents(_Base, frozen=True):
    """Documents of the collection that was begun last: BSON, one after another."""

    data: bytes


class CollectionEnd(_Base, frozen=True):
    """How many there were, and the sum of their digests (`databases.Tally`)."""

    count: int
    digest: bytes


class End(_Base, frozen=True):
    """Nothing is missing."""

    collections: int


Record = (
    Head
    | Secrets
    | StreamHead
    | Chunk
    | StreamEnd
    | Moment
    | Messages
    | Sequences
    | CollectionHead
    | Documents
    | CollectionEnd
    | End
)
