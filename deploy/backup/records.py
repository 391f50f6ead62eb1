"""The records of an archive, in the order in which they are written.

`Head`, `Secrets`; for each stream `StreamHead`, its `Chunk`s and `StreamEnd`; `Moment`; for each
stream the `Messages` stored between its snapshot and the moment; for each collection
`CollectionHead`, its `Documents` and `CollectionEnd`; `End`. The archive of a tenant has
`Sequences` after the moment, and no streams.
"""

from typing import Any

import msgspec

FORMAT = 1


class _Base(msgspec.Struct, frozen=True, tag=True):
    """Base of all records."""


class Head(_Base, frozen=True):
    """Identification of a backup."""

    version: str
    """Version of the platform that wrote the backup."""
    started: int
    """Start of the backup in epoch ms."""
    tenant: str | None = None
    """The tenant in this archive; None for a whole installation."""
    format: int = FORMAT


class Secrets(_Base, frozen=True):
    """The installation's `state.json`; for a tenant, the key of its sealed values."""

    state: bytes


class StreamHead(_Base, frozen=True):
    """Configuration and state of a stream, as in JetStream's API."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]


class Chunk(_Base, frozen=True):
    """A chunk of JetStream's snapshot of the current stream."""

    data: bytes


class StreamEnd(_Base, frozen=True):
    """End of a stream's snapshot."""


class StreamPosition(msgspec.Struct, frozen=True):
    """Position of a stream at the moment of the backup."""

    last: int
    """Sequence number of the last message; the restored stream continues after it."""
    first: int
    messages: int


class Moment(_Base, frozen=True):
    """The time to which the backup restores."""

    at: int
    """Epoch ms; the backup contains everything acknowledged before."""
    cluster_time: tuple[int, int] | None
    """MongoDB cluster time at which all databases are read: seconds and ordinal."""
    streams: dict[str, StreamPosition]


class Sequences(_Base, frozen=True):
    """Next id of each sequence (`{service}.{name}`), in the archive of a tenant."""

    ends: dict[str, int]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A message of a stream."""

    sequence: int
    subject: str
    headers: dict[str, str] | None
    payload: bytes


class Messages(_Base, frozen=True):
    """Messages that a stream stored after its snapshot."""

    stream: str
    messages: list[Message]


class CollectionHead(_Base, frozen=True):
    """A collection; `options` and `indexes` are BSON, as MongoDB lists them."""

    database: str
    name: str
    options: bytes
    indexes: bytes
    """`{indexes: […]}` without the index of `_id`."""


class Documents(_Base, frozen=True):
    """Documents of the current collection: concatenated BSON."""

    data: bytes


class CollectionEnd(_Base, frozen=True):
    """Number of documents, and the sum of their digests (`databases.Tally`)."""

    count: int
    digest: bytes


class End(_Base, frozen=True):
    """End of a complete archive, with its number of collections."""

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
