"""Private files, written whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from deploy.platform.errors import CommandError

PRIVATE_DIRECTORY = 0o700


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` atomically by a file of mode 0600 with `content`.

    A reader sees the old content or the new, also after a power cut: the new file
    reaches the disk before its name does.
    """
    with writing_private(path) as (file, _):
        file.write(content)


@contextlib.contextmanager
def writing_private(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Write a file as `write_private` does; yield the file and its path until it is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, Path(temporary)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    _sync_directory(path.parent)


def read_given(path: Path) -> bytes:
    """Return the content of a file that the user names; raise `CommandError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def read_given_text(path: Path) -> str:
    """Return the text of a file that the user names; raise `CommandError`."""
    try:
        return read_given(path).decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"cannot read {path}: {error}") from error


def make_private_directory(path: Path) -> Path:
    """Create `path` and its parents; `path` itself is readable by its owner only."""
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    return path


def _sync_directory(path: Path) -> None:
    """Let the names in a directory reach the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
