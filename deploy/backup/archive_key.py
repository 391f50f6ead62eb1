"""The keys of an archive, from options, files and the environment."""

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from deploy.platform.errors import CommandError
from deploy.platform.files import read_text_file

PASSPHRASE_VARIABLE = "THINGWAY_BACKUP_PASSPHRASE"  # noqa: S105 - the name of the variable
"""Environment variable with the passphrase of the archive."""


class ArchiveKey(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that encrypt or decrypt an archive.

    Without a passphrase and recipients, a new archive is not encrypted.
    """

    passphrase: str | None = None
    recipients: tuple[str, ...] = ()
    """age public keys (`age1…`)."""
    identities: tuple[str, ...] = ()
    """age private keys (`AGE-SECRET-KEY-1…`)."""

    @property
    def can_only_encrypt(self) -> bool:
        """Return whether only public keys are given, so the archive cannot be read here."""
        return bool(self.recipients) and not (self.passphrase or self.identities)

    def __repr__(self) -> str:
        return "ArchiveKey(…)"


def read_archive_key(options: Namespace) -> ArchiveKey:
    """Return the keys in the options, the files that they name, and the environment.

    Raises `CommandError` for a file without a passphrase or identity.
    """
    return ArchiveKey(
        passphrase=_read_passphrase(options.passphrase_file),
        recipients=tuple(getattr(options, "recipient", None) or ()),
        identities=_read_identities(getattr(options, "identity_file", None)),
    )


def _read_passphrase(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(PASSPHRASE_VARIABLE) or None
    text = read_text_file(file).rstrip("\r\n")
    if not text:
        raise CommandError(f"{file} is empty: it must contain the passphrase")
    return text


def _read_identities(file: Path | None) -> tuple[str, ...]:
    if file is None:
        return ()
    lines = (line.strip() for line in read_text_file(file).splitlines())
    identity_lines = tuple(line for line in lines if line and not line.startswith("#"))
    if not identity_lines:
        raise CommandError(f"{file} contains no identity (AGE-SECRET-KEY-1…)")
    return identity_lines
