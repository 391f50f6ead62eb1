"""What an archive is encrypted with, as the command line names it."""

import os
from argparse import Namespace
from pathlib import Path

from deploy.backup.archive import Key
from deploy.platform.errors import CommandError

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
    text = _read(file).rstrip("\r\n")
    if not text:
        raise CommandError(f"{file} has no passphrase")
    return text


def _identities(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    lines = (line.strip() for line in _read(file).splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if not found:
        raise CommandError(f"{file} has no identity")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {error}") from error
