"""The form of a backup: whole or refused, and unreadable without its key."""

import io

import pyrage
import pytest

from deploy.backup.archive import ArchiveBroken, Key, Reader, Writer
from deploy.backup.databases import Tally
from deploy.backup.records import (
    CollectionEnd,
    CollectionHead,
    Documents,
    End,
    Head,
    Moment,
    Record,
    Secrets,
)
from deploy.backup.restoring import Checked
from deploy.platform.errors import CommandError

DOCUMENT = b"\x05\x00\x00\x00\x00"
"""An empty one, as BSON."""


def _tally(*documents: bytes) -> CollectionEnd:
    tally = Tally()
    for document in documents:
        tally.add(document)
    return tally.end


RECORDS: list[Record] = [
    Head("1.2.3", 1),
    Secrets(b"a secret that nobody shall read"),
    Moment(2, (3, 4), {}),
    CollectionHead("d", "c", b"", b""),
    Documents(DOCUMENT * 2),
    _tally(DOCUMENT, DOCUMENT),
    End(1),
]
IDENTITY = pyrage.x25519.Identity.generate()
TO_IDENTITY = Key(recipients=(str(IDENTITY.to_public()),))
PLAIN, PASSPHRASE = Key(), Key(passphrase="correct horse")


def written(key: Key, records: list[Record] = RECORDS) -> bytes:
    """An archive of records."""
    out = io.BytesIO()
    writer = Writer(out, key)
    for record in records:
        writer.write(record)
    writer.close()
    return out.getvalue()


def read(data: bytes, key: Key) -> list[Record]:
    """The records of an archive, checked."""
    with Reader(io.BytesIO(data), key) as reader:
        return list(Checked(reader))


@pytest.mark.parametrize(
    ("sealed", "opened"),
    [
        (PLAIN, PLAIN),
        (PASSPHRASE, PASSPHRASE),
        (TO_IDENTITY, Key(identities=(str(IDENTITY),))),
    ],
)
def test_what_was_written_is_read(sealed: Key, opened: Key) -> None:
    """With and without encryption."""
    assert read(written(sealed), opened) == RECORDS


@pytest.mark.parametrize("key", [PASSPHRASE, TO_IDENTITY])
def test_an_encrypted_archive_shows_nothing_and_wants_its_key(key: Key) -> None:
    """Another passphrase or none is refused."""
    data = written(key)
    assert b"secret that" not in data
    for wrong in (PLAIN, Key(passphrase="another"), Key(identities=(_another(),))):
        with pytest.raises(CommandError):
            read(data, wrong)


def _another() -> str:
    return str(pyrage.x25519.Identity.generate())


def test_age_itself_opens_what_was_encrypted_for_a_key() -> None:
    """The archive is one plain age file."""
    assert pyrage.decrypt(written(TO_IDENTITY), [IDENTITY]) == written(PLAIN)


@pytest.mark.parametrize("key", [PLAIN, TO_IDENTITY])
def test_an_archive_that_was_cut_off_or_changed_is_refused(key: Key) -> None:
    """Wherever it is cut, and whichever byte has changed."""
    opened = Key(identities=(str(IDENTITY),)) if key.recipients else key
    data = written(key)
    last = len(data) - 1
    for end in (0, 5, 40, last // 2, last):
        with pytest.raises(CommandError):
            read(data[:end], opened)
    for place in (30, last // 2, last):
        with pytest.raises(CommandError):
            read(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], opened)


def test_a_collection_that_lacks_a_document_is_refused() -> None:
    """The count and the digests that the archive says are compared with what it has."""
    lacking = [Documents(DOCUMENT) if isinstance(one, Documents) else one for one in RECORDS]
    with pytest.raises(ArchiveBroken, match=r"d\.c is not as it was written"):
        read(written(PLAIN, lacking), PLAIN)
    with pytest.raises(ArchiveBroken, match="lacks collections"):
        read(written(PLAIN, [*RECORDS[:3], End(1)]), PLAIN)


def test_a_tally_does_not_depend_on_the_order() -> None:
    """The target answers in an order of its own."""
    assert _tally(b"a", b"b") == _tally(b"b", b"a") != _tally(b"a", b"a")
