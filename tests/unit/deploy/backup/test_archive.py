"""The archive format: corruption is detected, and reading requires the key."""

import errno
import io
import os
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pyrage
import pytest

from deploy.backup.archive import ArchiveBroken, ArchiveReader, ArchiveWriter, VerifiedArchive
from deploy.backup.archive_key import ArchiveKey
from deploy.backup.databases import CollectionTally
from deploy.backup.records import (
    ArchiveEnd,
    ArchiveHead,
    ArchiveRecord,
    BackupMoment,
    CollectionEnd,
    CollectionHead,
    Documents,
    Secrets,
)
from deploy.platform.errors import CommandError

DOCUMENT = b"\x05\x00\x00\x00\x00"
"""An empty BSON document."""


def _tally(*documents: bytes) -> CollectionEnd:
    tally = CollectionTally()
    for document in documents:
        tally.add(document)
    return tally.end_record


RECORDS: list[ArchiveRecord] = [
    ArchiveHead("1.2.3", 1),
    Secrets(b"a secret that nobody shall read"),
    BackupMoment(2, (3, 4), {}),
    CollectionHead("d", "c", b"", b""),
    Documents(DOCUMENT * 2),
    _tally(DOCUMENT, DOCUMENT),
    ArchiveEnd(1),
]
IDENTITY = pyrage.x25519.Identity.generate()
TO_IDENTITY = ArchiveKey(recipients=(str(IDENTITY.to_public()),))
PLAIN, PASSPHRASE = ArchiveKey(), ArchiveKey(passphrase="correct horse")


def write_archive(key: ArchiveKey, records: list[ArchiveRecord] = RECORDS) -> bytes:
    """Return an archive with these records."""
    out = io.BytesIO()
    write_records(out, key, records)
    return out.getvalue()


@cache
def sealed(key: ArchiveKey) -> bytes:
    """Return the archive of these records: a passphrase takes a second of processor time."""
    return write_archive(key)


def write_records(out: BinaryIO, key: ArchiveKey, records: list[ArchiveRecord]) -> ArchiveWriter:
    """Write an archive with these records; return its closed writer."""
    writer = ArchiveWriter(out, key)
    for record in records:
        writer.write(record)
    writer.close()
    return writer


def read_archive(data: bytes, key: ArchiveKey) -> list[ArchiveRecord]:
    """Return the verified records of an archive."""
    with ArchiveReader(io.BytesIO(data), key) as reader:
        return list(VerifiedArchive(reader))


@pytest.mark.parametrize(
    ("key", "opened"),
    [
        (PLAIN, PLAIN),
        (PASSPHRASE, PASSPHRASE),
        (TO_IDENTITY, ArchiveKey(identities=(str(IDENTITY),))),
    ],
)
def test_records_survive_with_and_without_encryption(key: ArchiveKey, opened: ArchiveKey) -> None:
    """A written archive returns its records."""
    assert read_archive(sealed(key), opened) == RECORDS


@pytest.mark.parametrize("key", [PASSPHRASE, TO_IDENTITY])
def test_an_encrypted_archive_requires_its_key(key: ArchiveKey) -> None:
    """A wrong or missing key is rejected, and the archive contains no plain text."""
    data = sealed(key)
    assert b"secret that" not in data
    for wrong in (PLAIN, ArchiveKey(passphrase="another"), ArchiveKey(identities=(_another(),))):
        with pytest.raises(CommandError):
            read_archive(data, wrong)


def _another() -> str:
    return str(pyrage.x25519.Identity.generate())


def test_age_can_decrypt_an_archive_for_a_recipient() -> None:
    """The archive is a plain age file."""
    assert pyrage.decrypt(write_archive(TO_IDENTITY), [IDENTITY]) == write_archive(PLAIN)


@pytest.mark.parametrize("key", [PLAIN, TO_IDENTITY])
def test_a_truncated_or_modified_archive_is_rejected(key: ArchiveKey) -> None:
    """Truncation at any place and a change of any byte are detected."""
    opened = ArchiveKey(identities=(str(IDENTITY),)) if key.recipients else key
    data = write_archive(key)
    last = len(data) - 1
    for end in (0, 5, 40, last // 2, last):
        with pytest.raises(CommandError):
            read_archive(data[:end], opened)
    for position in (30, last // 2, last):
        with pytest.raises(CommandError):
            read_archive(
                data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], opened
            )


def test_a_collection_without_one_document_is_rejected() -> None:
    """Counts and digests in the archive are compared with its documents."""
    lacking = [Documents(DOCUMENT) if isinstance(each, Documents) else each for each in RECORDS]
    with pytest.raises(ArchiveBroken, match=r"d\.c was modified after it was written"):
        read_archive(write_archive(PLAIN, lacking), PLAIN)
    with pytest.raises(ArchiveBroken, match="lacks collections"):
        read_archive(write_archive(PLAIN, [*RECORDS[:3], ArchiveEnd(1)]), PLAIN)


def test_a_tally_does_not_depend_on_the_order() -> None:
    """The target may return documents in another order."""
    assert _tally(b"a", b"b") == _tally(b"b", b"a") != _tally(b"a", b"a")


@pytest.mark.parametrize("key", [PLAIN, TO_IDENTITY])
def test_a_full_disk_is_the_error_of_each_kind_of_archive(key: ArchiveKey) -> None:
    """Encryption in another thread does not hide it."""
    with (
        Path("/dev/full").open("wb", buffering=0) as out,
        pytest.raises(OSError, match=os.strerror(errno.ENOSPC)),
    ):
        write_records(out, key, RECORDS)


def test_a_failed_read_is_not_a_modified_archive() -> None:
    """`thingway backup` deletes a modified backup, but not one that it cannot read."""
    key = ArchiveKey(identities=(str(IDENTITY),))
    data = write_archive(TO_IDENTITY, [*RECORDS, *[Documents(os.urandom(100_000))] * 4])

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > len(data) // 2:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(size)

    with (
        pytest.raises(OSError, match="Input/output error"),
        ArchiveReader(Failing(data), key) as it,
    ):
        list(it)
