"""The records of an archive, in the order in which they are written.

`ArchiveHead`, `Secrets`; for each stream `StreamHead`, its `SnapshotChunk`s and `StreamEnd`;
`BackupMoment`; for each stream the `StreamMessages` stored between its snapshot and the moment; for
each collection `CollectionHead`, its `Documents` and `CollectionEnd`; `ArchiveEnd`. The archive of
a tenant has `NextIds` after the moment, and no streams. Tags are names in stored archives.
"""

from typing import Any

import msgspec

FORMAT_VERSION = 1


class _TaggedRecord(msgspec.Struct, frozen=True, tag=True):
    """Base of the records of an archive; each has a tag."""


class ArchiveHead(_TaggedRecord, frozen=True, tag="Head"):
    """Identification of a backup."""

    version: str
    """Version of the platform that wrote the backup."""
    started: int
    """Start of the backup in epoch ms."""
    tenant: str | None = None
    """The tenant in this archive; None for a whole installation."""
    format: int = FORMAT_VERSION


class Secrets(_TaggedRecord, frozen=True):
    """The installation's `state.json`; for a tenant, the key of its sealed values."""

    state: bytes


class StreamHead(_TaggedRecord, frozen=True):
    """Configuration and state of a stream, as in JetStream's API."""

    name: str
    config: dict[str, Any]
    state: dict[str, Any]


class SnapshotChunk(_TaggedRecord, frozen=True, tag="Chunk"):
    """Bytes of JetStream's snapshot of the stream in the latest `StreamHead`."""

    data: bytes


class StreamEnd(_TaggedRecord, frozen=True):
    """End of a stream's snapshot."""


class StreamPosition(msgspec.Struct, frozen=True):
    """First and last sequence number of a stream, and its number of messages."""

    last: int
    """Sequence number of the last message; the restored stream continues after it."""
    first: int
    messages: int


class BackupMoment(_TaggedRecord, frozen=True, tag="Moment"):
    """The time whose state the backup contains."""

    at: int
    """Epoch ms; the backup contains everything acknowledged before."""
    cluster_time: tuple[int, int] | None
    """MongoDB cluster time of the databases: epoch seconds, and the ordinal within the second."""
    streams: dict[str, StreamPosition]


class NextIds(_TaggedRecord, frozen=True, tag="Sequences"):
    """Next id of each id sequence (`{service}.{name}`), in a tenant's archive."""

    ends: dict[str, int]


class StreamMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message of a stream."""

    sequence: int
    subject: str
    headers: dict[str, str] | None
    payload: bytes


class StreamMessages(_TaggedRecord, frozen=True, tag="Messages"):
    """Messages that a stream stored after its snapshot."""

    stream: str
    messages: list[StreamMessage]


class CollectionHead(_TaggedRecord, frozen=True):
    """Start of a collection; `options` and `indexes` are BSON, as MongoDB lists them."""

    database: str
    name: str
    options: bytes
    indexes: bytes
    """`{indexes: […]}` without the index of `_id`."""


class Documents(_TaggedRecord, frozen=True):
    """Concatenated BSON documents of the collection in the latest `CollectionHead`."""

    data: bytes


class CollectionEnd(_TaggedRecord, frozen=True):
    """Number of a collection's documents, and their digest (`CollectionTally`)."""

    count: int
    digest: bytes


class ArchiveEnd(_TaggedRecord, frozen=True, tag="End"):
    """End of a complete archive, with its number of collections."""

    collections: int


ArchiveRecord = (
    ArchiveHead
    | Secrets
    | StreamHead
    | SnapshotChunk
    | StreamEnd
    | BackupMoment
    | StreamMessages
    | NextIds
    | CollectionHead
    | Documents
    | CollectionEnd
    | ArchiveEnd
)
