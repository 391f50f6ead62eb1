"""The form of a backup: records in frames, compressed, with a sum; encrypted as age does it.

After `MAGIC` each frame is its length (4 bytes, big-endian) and so many bytes: a record as
MessagePack, compressed with zlib. A frame of length 0 ends them, and the SHA-256 of all before it
is last, so a file that was cut off or changed is told from a whole one.

Encrypted, all this is one age file (https://age-encryption.org/v1): authenticated chunks of
64 KiB under a key that each recipient's key opens. With a passphrase that key is made for the
archive, and stands in front of it, sealed with the passphrase: `SEALED`, its length, itself.
"""

import contextlib
import hashlib
import os
import struct
import threading
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Self

import msgspec
import pyrage

from deploy.backup.records import Record
from deploy.platform.errors import CommandError
from deploy.platform.files import read_given_text

MAGIC = b"thingway backup 1\n"
SEALED = b"thingway backup sealed 1\n"
_AGE = b"age-encryption.org/v1"
_LENGTH = struct.Struct(">I")
_MOST = 64 * 1024**2
"""Bytes of a frame, and of the record in it: four times MongoDB's largest answer."""
_LEVEL = 1
"""Of compression: a third of the size at the speed of a disk."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


class ArchiveBroken(CommandError):
    """The archive is not whole, or no archive."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is encrypted with or opened with; nothing: it is not encrypted."""

    passphrase: str | None = None
    recipients: tuple[str, ...] = ()
    """Public keys of age (`age1…`)."""
    identities: tuple[str, ...] = ()
    """Private keys of age (`AGE-SECRET-KEY-1…`)."""

    def __repr__(self) -> str:
        return "Key(…)"


class _Through:
    """A pipe with a thread at its other end, whose failure is the caller's."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised again by `join`
            self._fault = error

    def join(self) -> None:
        """Wait for its end; raise what it failed with."""
        self._thread.join()
        if self._fault is not None:
            raise self._fault


class Writer:
    """Writes records to a stream of bytes; `close` makes the archive whole."""

    def __init__(self, out: BinaryIO, key: Key) -> None:
        self._sum = hashlib.sha256()
        self._through: _Through | None = None
        self._out = out
        if key.passphrase or key.recipients:
            self._out = self._encrypting(out, key)
        self._put(MAGIC)

    def write(self, record: Record) -> None:
        """Add a record; raises `OSError` when it cannot be written."""
        frame = zlib.compress(_encode(record), _LEVEL)
        self._put(_LENGTH.pack(len(frame)) + frame)

    def close(self) -> None:
        """End the archive, and what was written through; the stream below stays open."""
        self._put(_LENGTH.pack(0))
        self._out.write(self._sum.digest())
        self._out.flush()
        if self._through is not None:
            self._out.close()
            self._through.join()

    def _put(self, data: bytes) -> None:
        self._sum.update(data)
        try:
            self._out.write(data)
        except BrokenPipeError:
            if self._through is not None:
                self._through.join()
            raise

    def _encrypting(self, out: BinaryIO, key: Key) -> BinaryIO:
        recipients = [_recipient(one) for one in key.recipients]
        if key.passphrase:
            identity = pyrage.x25519.Identity.generate()
            recipients.append(identity.to_public())
            sealed = pyrage.passphrase.encrypt(str(identity).encode(), key.passphrase)
            out.write(SEALED + _LENGTH.pack(len(sealed)) + sealed)
        source, sink = os.pipe()

        def encrypt() -> None:
            with os.fdopen(source, "rb") as plain:
                pyrage.encrypt_io(plain, out, recipients)
            out.flush()

        self._through = _Through(encrypt)
        return os.fdopen(sink, "wb")


class Reader:
    """Reads the records of an archive; raises `ArchiveBroken` where it is not as it was written."""

    def __init__(self, source: BinaryIO, key: Key) -> None:
        self._sum = hashlib.sha256()
        self._through: _Through | None = None
        self._source = source
        beginning = self._exactly(len(MAGIC), note=False)
        if beginning != MAGIC:
            self._source = self._decrypting(source, beginning, key)
            beginning = self._exactly(len(MAGIC), note=False)
        if beginning != MAGIC:
            raise ArchiveBroken("this is no backup of Thingway, or one of another form")
        self._sum.update(beginning)

    def __iter__(self) -> Iterator[Record]:
        """Every record; the sum is checked behind the last."""
        while length := _LENGTH.unpack(self._exactly(_LENGTH.size))[0]:
            yield self._record(self._exactly(min(length, _MOST + 1)))
        found = self._sum.digest()
        if self._exactly(len(found), note=False) != found:
            raise ArchiveBroken("the archive has changed since it was written")
        if self._through is not None:
            self._through.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._through is not None:
            self._source.close()

    @staticmethod
    def _record(frame: bytes) -> Record:
        try:
            inflating = zlib.decompressobj()
            content = inflating.decompress(frame, _MOST)
            if not inflating.eof:
                raise ArchiveBroken("a record of the archive is too large")
            record: Record = _decode(content)
        except (zlib.error, msgspec.MsgspecError) as error:
            raise ArchiveBroken(f"a record of the archive cannot be read: {error}") from error
        return record

    def _exactly(self, length: int, *, note: bool = True) -> bytes:
        data = self._source.read(length)
        if len(data) < length:
            if self._through is not None:
                self._through.join()
            raise ArchiveBroken("the archive ends too early")
        if note:
            self._sum.update(data)
        return data

    def _decrypting(self, source: BinaryIO, beginning: bytes, key: Key) -> BinaryIO:
        identities = list(key.identities)
        if SEALED.startswith(beginning):
            beginning = self._sealed(source, beginning, key, identities)
        if not _AGE.startswith(beginning[: len(_AGE)]):
            raise ArchiveBroken("this is no backup of Thingway")
        if not identities:
            raise CommandError("the backup is encrypted: give --identity-file or a passphrase")
        opened = [_identity(one) for one in identities]
        inside, sink = os.pipe()
        whole = _Prefixed(beginning, source)

        def decrypt() -> None:
            with os.fdopen(sink, "wb") as plain, contextlib.suppress(BrokenPipeError):
                try:
                    pyrage.decrypt_io(whole, plain, opened)
                except (pyrage.DecryptError, OSError) as error:
                    if isinstance(error, BrokenPipeError):
                        raise
                    raise ArchiveBroken(
                        f"the backup cannot be opened: another key, or it has changed ({error})"
                    ) from error

        self._through = _Through(decrypt)
        return os.fdopen(inside, "rb")

    def _sealed(self, source: BinaryIO, beginning: bytes, key: Key, identities: list[str]) -> bytes:
        """Open the key in front of the archive; how the archive itself begins."""
        self._exactly(len(SEALED) - len(beginning), note=False)
        sealed = self._exactly(
            _LENGTH.unpack(self._exactly(_LENGTH.size, note=False))[0], note=False
        )
        if key.passphrase is not None:
            try:
                identities.append(pyrage.passphrase.decrypt(sealed, key.passphrase).decode())
            except pyrage.DecryptError as error:
                raise CommandError("the passphrase is not that of the backup") from error
        return self._exactly(len(_AGE), note=False)


class _Prefixed:
    """A stream of which the beginning has been read already."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._beginning = beginning
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if not self._beginning:
            return self._rest.read(size)
        end = len(self._beginning) if size < 0 else size
        data, self._beginning = self._beginning[:end], self._beginning[end:]
        return data


def _recipient(text: str) -> pyrage.x25519.Recipient:
    try:
        return pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise CommandError(f"{text!r} is no public key of age (age1…)") from error


def _identity(text: str) -> pyrage.x25519.Identity:
    try:
        return pyrage.x25519.Identity.from_str(text)
    except pyrage.IdentityError as error:
        raise CommandError("the identity is no private key of age (AGE-SECRET-KEY-1…)") from error


PASSPHRASE = "THINGWAY_BACKUP_PASSPHRASE"  # noqa: S105 - its name
"""Environment variable."""


def key_of(given: Namespace) -> Key:
    """The key that options and environment name; raises `CommandError` for a file without one."""
    return Key(
        passphrase=_passphrase(given.passphrase_file),
        recipients=tuple(getattr(given, "recipient", None) or ()),
        identities=_identities(getattr(given, "identity_file", None)),
    )


def _passphrase(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(PASSPHRASE) or None
    text = read_given_text(file).rstrip("\r\n")
    if not text:
        raise CommandError(f"{file} has no passphrase")
    return text


def _identities(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    lines = (line.strip() for line in read_given_text(file).splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if not found:
        raise CommandError(f"{file} has no identity")
    return found
