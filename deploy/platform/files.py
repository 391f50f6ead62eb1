"""Private files, written atomically."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from deploy.platform.errors import CommandError

PRIVATE_DIRECTORY_MODE = 0o700


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` atomically with a file of mode 0600 and this content.

    Readers see the old or the new content, even after a power cut: the file is flushed to disk
    before it is renamed.
    """
    with open_private_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def open_private_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` like `write_private` when the block ends."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    _sync_directory(path.parent)


def read_file(path: Path) -> bytes:
    """Return the content of a file; raise `CommandError` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def read_text_file(path: Path) -> str:
    """Return the text of a UTF-8 file; raise `CommandError` if it cannot be read."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def create_private_directory(path: Path) -> Path:
    """Create `path` and its parents if missing; only the owner can read a new `path`."""
    path.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    return path


def _sync_directory(path: Path) -> None:
    """Flush a directory's entries to disk, so that a rename survives a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
