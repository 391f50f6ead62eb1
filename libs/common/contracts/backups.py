"""The report of a backup or its test to `device`, which shows age and size as metrics."""

import msgspec

RECORD_BACKUP = "rpc.device.record_backup"


class FinishedBackup(msgspec.Struct, frozen=True):
    """A finished backup of the whole installation."""

    at: int
    """Time of the saved state, epoch ms."""
    bytes: int
    """Size of the archive."""
    verified: bool = False
    """Whether the archive was read again and found complete."""
    disk_used: int = 0
    """Used bytes of the volume with the archive; 0 if it went to standard output."""
    disk_size: int = 0
    """Size of this volume in bytes."""
    restore_seconds: float = 0.0
    """Duration of a test that restored an earlier backup; 0 for a new backup."""
