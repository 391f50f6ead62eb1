"""The lock that allows one launcher per data directory."""

import fcntl
import os
import time
from pathlib import Path

from deploy.platform import state as states
from deploy.platform.errors import LauncherError
from deploy.platform.files import create_private_directory

FILE_NAME = "lock"
RESTORE_MARKER = "restoring"
"""Name of the file that exists during a restore; `up` does not start meanwhile."""
_MAX_CHILDREN_WAIT_SECONDS = 20.0
_PAUSE_SECONDS = 0.05


def acquire(directory: Path) -> int:
    """Lock `directory` (created if absent) and return the descriptor of the lock.

    Children inherit the descriptor. After a `kill -9` of the launcher they still hold the lock, so
    a new launcher waits for their end instead of finding ports and data files in use. Raises
    `LauncherError` if another launcher uses the directory or another user owns it.
    """
    states.require_owner(directory)
    handle = _open_lock_file(directory)
    deadline = time.monotonic() + _MAX_CHILDREN_WAIT_SECONDS
    while not _try_lock(handle):
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
        if _is_alive(owner) or time.monotonic() > deadline:
            os.close(handle)
            raise LauncherError(f"another launcher (pid {owner or '?'}) already uses {directory}")
        time.sleep(_PAUSE_SECONDS)
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def is_held(directory: Path) -> bool:
    """Return whether a launcher uses `directory` now.

    Raises `LauncherError` if this user may not read the directory.
    """
    try:
        handle = os.open(directory / FILE_NAME, os.O_RDONLY)
    except PermissionError as error:
        raise LauncherError(
            f"cannot read {directory}: {error.strerror}: run the command as the platform's user"
        ) from error
    except OSError:
        return False
    try:
        return not _try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _open_lock_file(directory: Path) -> int:
    try:
        create_private_directory(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(0, "no permission to write")
        return os.open(directory / FILE_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LauncherError(
            f"cannot write to the data directory {directory}: {reason}: choose another with --data"
        ) from error


def _try_lock(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
