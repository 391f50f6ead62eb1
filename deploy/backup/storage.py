"""Where backups are stored: a folder, or S3-compatible storage (`s3://`)."""

import contextlib
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from deploy.platform.errors import CommandError
from deploy.platform.files import create_private_directory, open_private_file
from libs.common.clock import from_ms

S3_SCHEME = "s3://"
DAY_SECONDS = 24 * 3600
MAX_BACKUP_SECONDS = DAY_SECONDS
"""Maximum duration of a backup; incomplete files and uploads older than this are deleted."""
_BACKUP_SUFFIX = ".backup"
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_NAME_PATTERN = re.compile(r"thingway(?:-(?P<tenant>[\w-]+))?-(?P<time>\d{8}T\d{6}Z)\.backup")


@dataclass(frozen=True)
class StoredBackup:
    """A complete backup; its name contains the tenant and the time of its start."""

    name: str
    size: int
    tenant: str | None
    started: datetime

    @classmethod
    def parse(cls, name: str, size: int) -> "StoredBackup | None":
        """Return the backup with this name; None if it is not the name of a backup."""
        match = _NAME_PATTERN.fullmatch(name)
        if match is None:
            return None
        try:
            started = datetime.strptime(match["time"], _TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            return None
        return cls(name, size, match["tenant"], started)


class Storage(Protocol):
    """A folder or a bucket. An interrupted backup never gets its name."""

    def locate(self, name: str) -> str:
        """Return the path or URL of a backup."""

    def list_backups(self) -> list[StoredBackup]:
        """Return the complete backups, oldest first."""

    def create_backup(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Yield a stream for a backup, which gets `name` after a block without error."""

    def open_backup(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Read a backup."""

    def delete_backup(self, name: str) -> None:
        """Delete a backup."""

    def measure_used_and_total(self) -> tuple[int, int]:
        """Return used and total bytes of the volume; zeros if it has no fixed size."""


@dataclass(frozen=True)
class FolderStorage:
    """Backups in a folder."""

    directory: Path

    def locate(self, name: str) -> str:
        """Return the path of a backup."""
        return str(self.directory / name)

    def list_backups(self) -> list[StoredBackup]:
        """Return the complete backups, oldest first."""
        return parse_backups(self._list_names_and_sizes())

    def _list_names_and_sizes(self) -> Iterator[tuple[str, int]]:
        for path in self.directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another backup may rename it
                yield path.name, path.stat().st_size

    @contextlib.contextmanager
    def create_backup(self, name: str) -> Iterator[BinaryIO]:
        """Yield a stream to a file that gets `name` after a block without error.

        First deletes incomplete files older than `MAX_BACKUP_SECONDS`.
        """
        create_private_directory(self.directory)
        for path in self.directory.glob(f".thingway-*{_BACKUP_SUFFIX}.*"):
            with contextlib.suppress(FileNotFoundError):  # another backup may rename it
                if path.stat().st_mtime < time.time() - MAX_BACKUP_SECONDS:
                    path.unlink()
        with open_private_file(self.directory / name) as out:
            yield out

    def open_backup(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Read a backup."""
        return (self.directory / name).open("rb")

    def delete_backup(self, name: str) -> None:
        """Delete a backup."""
        (self.directory / name).unlink()

    def measure_used_and_total(self) -> tuple[int, int]:
        """Return used and total bytes of the volume."""
        disk = shutil.disk_usage(self.directory)
        return disk.used, disk.total


def open_storage(folder: str) -> Storage:
    """Return the storage at a path or `s3://BUCKET/PREFIX`.

    Raises `CommandError` if the URL names no bucket or S3 cannot be used.
    """
    if not folder.startswith(S3_SCHEME):
        return FolderStorage(Path(folder))
    from deploy.backup.s3 import S3Storage  # noqa: PLC0415 - only S3 loads its library

    return S3Storage(folder)


def find_backup(source: str) -> tuple[Storage, str]:
    """Return the storage of the backup at `source`, and the backup's name in it.

    `source` is a backup, a folder, or a prefix of a bucket. In a folder or prefix, the newest
    backup of the whole installation is chosen. Raises `CommandError` if the folder or prefix
    has none.
    """
    path = Path(source)
    if source.startswith(S3_SCHEME) and source.endswith(_BACKUP_SUFFIX):
        folder, _, name = source.rpartition("/")
        return open_storage(folder), name
    if not source.startswith(S3_SCHEME) and not path.is_dir():
        return FolderStorage(path.parent), path.name
    storage = open_storage(source)
    whole = [backup.name for backup in storage.list_backups() if backup.tenant is None]
    if not whole:
        raise CommandError(
            f"{source} contains no backup of all tenants (thingway-TIME{_BACKUP_SUFFIX})"
        )
    return storage, whole[-1]


def build_backup_name(started: int, tenant: str | None) -> str:
    """Return the name of a backup that started at an epoch ms."""
    owner = "" if tenant is None else f"-{tenant}"
    return f"thingway{owner}-{from_ms(started):{_TIME_FORMAT}}{_BACKUP_SUFFIX}"


def parse_backups(files: Iterator[tuple[str, int]]) -> list[StoredBackup]:
    """Return the backups among files (pairs of name and size), oldest first."""
    parsed = (StoredBackup.parse(name, size) for name, size in files)
    return sorted((each for each in parsed if each), key=lambda backup: backup.started)


def choose_expired(
    stored: Sequence[StoredBackup], newest: str, keep: int | None, keep_days: int | None
) -> list[StoredBackup]:
    """Return the backups that retention deletes after the backup `newest`.

    A backup stays if it is one of the `keep` newest, or not older than `keep_days`. `newest` always
    stays. Backups of other tenants are not considered.
    """
    if keep is None and keep_days is None:
        return []
    (last,) = (backup for backup in stored if backup.name == newest)
    series = [backup for backup in stored if backup.tenant == last.tenant and backup != last]
    older = series[: max(len(series) + 1 - (keep or 1), 0)]
    return [
        backup
        for backup in older
        if keep_days is None
        or (last.started - backup.started).total_seconds() > keep_days * DAY_SECONDS
    ]
