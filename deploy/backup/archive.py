"""File format of a backup: compressed records, a checksum, optional encryption.

After `ARCHIVE_MAGIC`, each frame is a length (4 bytes, big-endian) and as many bytes: a record as
MessagePack, compressed with zlib. A frame of length 0 ends the records. The SHA-256 of everything
before it follows, so that a truncated or modified file is detected.

An encrypted archive is one age file (https://age-encryption.org/v1): authenticated chunks of 64 KiB
under a file key that each recipient's key decrypts. With a passphrase, the archive gets a new key
pair, and its private key precedes the age file, encrypted with the passphrase: `PASSPHRASE_MAGIC`,
its length, the key.
"""

import asyncio
import contextlib
import hashlib
import os
import struct
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, BinaryIO, Self

import msgspec
import pyrage

from deploy.backup.archive_key import ArchiveKey
from deploy.backup.databases import CollectionTally, split_documents
from deploy.backup.records import (
    FORMAT_VERSION,
    ArchiveEnd,
    ArchiveHead,
    ArchiveRecord,
    BackupMoment,
    CollectionEnd,
    CollectionHead,
    Documents,
)
from deploy.platform.errors import CommandError

WriteRecord = Callable[[ArchiveRecord], Awaitable[None]]
Log = Callable[[str], None]

ARCHIVE_MAGIC = b"thingway backup 1\n"
PASSPHRASE_MAGIC = b"thingway backup sealed 1\n"
_AGE_MAGIC = b"age-encryption.org/v1"
_LENGTH_FORMAT = struct.Struct(">I")
_MAX_RECORD_BYTES = 64 * 1024**2
"""Maximum bytes of a frame and of its record: four times the size of MongoDB's largest reply."""
_COMPRESSION_LEVEL = 1
"""The fastest zlib level, which reduces the data to a third and keeps up with a disk."""

_encode_record = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(ArchiveRecord).decode


class ArchiveBroken(CommandError):
    """An archive that is truncated, modified, or not a backup."""


class _PipeThread:
    """A thread at the other end of a pipe; `join` raises its error."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run_target = run
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._run_target()
        except Exception as error:  # noqa: BLE001 - raised again by `join`
            self._error = error

    def join(self) -> None:
        """Wait for the thread to end; raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error


class HashingOutput:
    """Forwards bytes to a stream; counts and hashes them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._sum = hashlib.sha256()
        self.size = 0
        self.error: BaseException | None = None
        """First error of the stream; None without errors."""

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of the bytes written so far."""
        return self._sum.digest()

    def write(self, data: bytes) -> int:
        """Write bytes to the stream; return how many it accepted."""
        self._sum.update(data)
        self.size += len(data)
        with self._remember_errors():
            return self._out.write(data)

    def flush(self) -> None:
        """Flush the stream."""
        with self._remember_errors():
            self._out.flush()

    @contextlib.contextmanager
    def _remember_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.error = self.error or error
            raise


class ArchiveWriter:
    """Writes records to a byte stream; `close` completes the archive."""

    def __init__(self, out: BinaryIO, key: ArchiveKey) -> None:
        self._sum = hashlib.sha256()
        self._pipe: _PipeThread | None = None
        self.output = HashingOutput(out)
        """Receives the encrypted bytes, or the plain ones without encryption."""
        self._out: Any = self.output
        if key.passphrase or key.recipients:
            self._out = self._open_encryption(key)
        self._write_hashed(ARCHIVE_MAGIC)

    def write(self, record: ArchiveRecord) -> None:
        """Append a record; raise `OSError` if it cannot be written."""
        frame = zlib.compress(_encode_record(record), _COMPRESSION_LEVEL)
        self._write_hashed(_LENGTH_FORMAT.pack(len(frame)) + frame)

    def close(self) -> None:
        """Complete the archive; the underlying stream stays open."""
        self._write_hashed(_LENGTH_FORMAT.pack(0))
        with self._raise_stream_error():
            self._out.write(self._sum.digest())
            self._out.flush()
            if self._pipe is not None:
                self._out.close()
                self._pipe.join()

    def _write_hashed(self, data: bytes) -> None:
        self._sum.update(data)
        with self._raise_stream_error():
            self._out.write(data)

    @contextlib.contextmanager
    def _raise_stream_error(self) -> Iterator[None]:
        """Raise the stream's first error after the block; `pyrage` hides or ignores it."""
        try:
            yield
        finally:
            if self.output.error is not None:
                raise self.output.error

    def _open_encryption(self, key: ArchiveKey) -> BinaryIO:
        recipients = [_parse_recipient(text) for text in key.recipients]
        if key.passphrase:
            identity = pyrage.x25519.Identity.generate()
            recipients.append(identity.to_public())
            sealed = pyrage.passphrase.encrypt(str(identity).encode(), key.passphrase)
            self.output.write(PASSPHRASE_MAGIC + _LENGTH_FORMAT.pack(len(sealed)) + sealed)
        source, sink = os.pipe()

        def encrypt() -> None:
            with os.fdopen(source, "rb") as plain:
                pyrage.encrypt_io(plain, self.output, recipients)
            self.output.flush()

        self._pipe = _PipeThread(encrypt)
        return os.fdopen(sink, "wb")


class ArchiveReader:
    """Reads the records of an archive; raises `ArchiveBroken` if it was modified.

    Raises `CommandError` if the archive is encrypted and `key` cannot decrypt it.
    """

    def __init__(self, source: BinaryIO, key: ArchiveKey) -> None:
        self._sum = hashlib.sha256()
        self._pipe: _PipeThread | None = None
        self._source = source
        beginning = self._read_exactly(len(ARCHIVE_MAGIC), is_hashed=False)
        if beginning != ARCHIVE_MAGIC:
            self._source = self._open_decryption(source, beginning, key)
            beginning = self._read_exactly(len(ARCHIVE_MAGIC), is_hashed=False)
        if beginning != ARCHIVE_MAGIC:
            raise ArchiveBroken(
                "the file is not a Thingway backup, or has an unknown format version"
            )
        self._sum.update(beginning)

    def __iter__(self) -> Iterator[ArchiveRecord]:
        """Yield every record, then verify the checksum."""
        while length := _LENGTH_FORMAT.unpack(self._read_exactly(_LENGTH_FORMAT.size))[0]:
            yield self._decode_frame(self._read_exactly(min(length, _MAX_RECORD_BYTES + 1)))
        digest = self._sum.digest()
        if self._read_exactly(len(digest), is_hashed=False) != digest:
            raise ArchiveBroken("the archive was modified after it was written")
        if self._pipe is not None:
            self._pipe.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            self._source.close()

    @staticmethod
    def _decode_frame(frame: bytes) -> ArchiveRecord:
        try:
            inflating = zlib.decompressobj()
            content = inflating.decompress(frame, _MAX_RECORD_BYTES)
            if not inflating.eof:
                raise ArchiveBroken("the archive contains a record that is too large")
            record: ArchiveRecord = _decode_record(content)
        except (zlib.error, msgspec.MsgspecError) as error:
            raise ArchiveBroken(f"cannot decode a record of the archive: {error}") from error
        return record

    def _read_exactly(self, length: int, *, is_hashed: bool = True) -> bytes:
        data = self._source.read(length)
        if len(data) < length:
            if self._pipe is not None:
                self._pipe.join()
            raise ArchiveBroken("the archive is truncated")
        if is_hashed:
            self._sum.update(data)
        return data

    def _open_decryption(self, source: BinaryIO, beginning: bytes, key: ArchiveKey) -> BinaryIO:
        identities = list(key.identities)
        if PASSPHRASE_MAGIC.startswith(beginning):
            beginning = self._read_passphrase_header(source, beginning, key, identities)
        if not _AGE_MAGIC.startswith(beginning[: len(_AGE_MAGIC)]):
            raise ArchiveBroken("the file is not a Thingway backup")
        if not identities:
            raise CommandError("the backup is encrypted: add --identity-file or --passphrase-file")
        opened = [_parse_identity(text) for text in identities]
        inside, sink = os.pipe()
        whole = _PrefixedStream(beginning, source)

        def decrypt() -> None:
            with os.fdopen(sink, "wb") as plain, contextlib.suppress(BrokenPipeError):
                try:
                    pyrage.decrypt_io(whole, plain, opened)
                except (pyrage.DecryptError, OSError) as error:
                    if whole.error is not None:
                        raise whole.error from None
                    if isinstance(error, BrokenPipeError):
                        raise
                    raise ArchiveBroken(
                        f"cannot decrypt the backup: wrong key, or the file was modified ({error})"
                    ) from error

        self._pipe = _PipeThread(decrypt)
        return os.fdopen(inside, "rb")

    def _read_passphrase_header(
        self, source: BinaryIO, beginning: bytes, key: ArchiveKey, identities: list[str]
    ) -> bytes:
        """Add the header's private key to `identities` if `key` has the passphrase.

        Returns the first bytes of the age file, which follows the header.
        """
        self._read_exactly(len(PASSPHRASE_MAGIC) - len(beginning), is_hashed=False)
        sealed = self._read_exactly(
            _LENGTH_FORMAT.unpack(self._read_exactly(_LENGTH_FORMAT.size, is_hashed=False))[0],
            is_hashed=False,
        )
        if key.passphrase is not None:
            try:
                identities.append(pyrage.passphrase.decrypt(sealed, key.passphrase).decode())
            except pyrage.DecryptError as error:
                raise CommandError("wrong passphrase for this backup") from error
        return self._read_exactly(len(_AGE_MAGIC), is_hashed=False)


class _PrefixedStream:
    """A stream that returns `beginning`, which was read already, and then `rest`."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._beginning = beginning
        self._rest = rest
        self.error: OSError | None = None
        """Error of the stream, which `pyrage` does not distinguish from modified bytes."""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        if not self._beginning:
            try:
                return self._rest.read(size)
            except OSError as error:
                self.error = error
                raise
        end = len(self._beginning) if size < 0 else size
        data, self._beginning = self._beginning[:end], self._beginning[end:]
        return data


def _parse_recipient(text: str) -> pyrage.x25519.Recipient:
    try:
        return pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise CommandError(f"{text!r} is not an age public key (age1…)") from error


def _parse_identity(text: str) -> pyrage.x25519.Identity:
    try:
        return pyrage.x25519.Identity.from_str(text)
    except pyrage.IdentityError as error:
        raise CommandError("the identity is not an age private key (AGE-SECRET-KEY-1…)") from error


class VerifiedArchive:
    """Iterator over records that checks the count and digest of each collection."""

    def __init__(self, records: Iterable[ArchiveRecord]) -> None:
        self._records = self._verify(records)
        self._head: ArchiveHead | None = None
        self._moment: BackupMoment | None = None
        self.collections: dict[tuple[str, str], CollectionEnd] = {}

    @property
    def head(self) -> ArchiveHead:
        """Return the record that identifies the backup, once read.

        Raises `ArchiveBroken` before.
        """
        if self._head is None:
            raise ArchiveBroken("the archive has no head")
        return self._head

    @property
    def moment(self) -> BackupMoment:
        """Return the record with the time of the backup, once read.

        Raises `ArchiveBroken` before.
        """
        if self._moment is None:
            raise ArchiveBroken("the archive has no moment")
        return self._moment

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ArchiveRecord:
        """Return the next record; raise `ArchiveBroken` if records were modified or lost."""
        return next(self._records)

    def _verify(self, records: Iterable[ArchiveRecord]) -> Iterator[ArchiveRecord]:
        collection, tally, ended = ("", ""), CollectionTally(), False
        for record in records:
            match record:
                case ArchiveHead():
                    self._head = record
                    if record.format != FORMAT_VERSION:
                        raise ArchiveBroken(
                            f"version {record.version} wrote this archive in another format"
                        )
                case CollectionHead():
                    collection, tally = (record.database, record.name), CollectionTally()
                case Documents():
                    for document in split_documents(record.data):
                        tally.add(document)
                case CollectionEnd():
                    if record != tally.end_record:
                        raise ArchiveBroken(
                            f"{'.'.join(collection)} was modified after it was written"
                        )
                    self.collections[collection] = record
                case BackupMoment():
                    self._moment = record
                case ArchiveEnd():
                    ended = record.collections == len(self.collections)
                case _:
                    pass
            yield record
        if not ended or self._head is None:
            raise ArchiveBroken("the archive lacks collections")


async def read_records(archive: VerifiedArchive) -> AsyncIterator[ArchiveRecord]:
    """Yield the remaining records of an archive; a thread reads the file."""
    while (record := await asyncio.to_thread(next, archive, None)) is not None:
        yield record
