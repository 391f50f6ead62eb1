"""Private files, written whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

PRIVATE_DIRECTORY = 0o700


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` atomically by a file of mode 0600 with `content`.

    A reader sees the old content or the new, also after a power cut: the new file
    reaches the disk before its name does.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    sync_directory(path.parent)


def make_private_directory(path: Path) -> Path:
    """Create `path` and its parents; `path` itself is readable by its owner only."""
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    return path


def sync_directory(path: Path) -> None:
    """Let the names in a directory reach the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
