"""`thingway backup` and `restore`, without stores."""

import hashlib
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pyrage
import pytest

from deploy.backup.archive import ArchiveBroken, VerifiedArchive
from deploy.backup.archive_key import ArchiveKey
from deploy.backup.records import ArchiveHead, BackupMoment, Secrets, StreamPosition
from deploy.backup.storage import FolderStorage
from deploy.backup.stores import Stores
from deploy.local import backups
from deploy.platform.errors import CommandError
from deploy.platform.state import Addresses, State
from libs.common.contracts.backups import FinishedBackup

NAME = "thingway-20260102T030405Z.backup"
NEW = Stores(state=State(), mongo_url="", nats=Addresses("", "", ""), redis_url="")


async def test_a_restore_waits_until_new_stores_accept_its_logins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the first reason once."""
    answers = [CommandError("no user auth"), CommandError("no user device"), None]

    async def check(_: Stores) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr(backups, "check_restore_logins", check)
    await backups.wait_for_stores(NEW)
    assert answers == []
    assert capsys.readouterr().err == "waiting for the stores: no user auth\n"


async def test_the_wait_for_stores_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains the reason."""

    async def check(_: Stores) -> None:
        raise CommandError("no user auth")

    monkeypatch.setattr(backups, "check_restore_logins", check)
    monkeypatch.setattr(backups, "_STORES_READY_SECONDS", 0.01)
    with pytest.raises(CommandError, match="not ready in time: no user auth"):
        await backups.wait_for_stores(NEW)


async def test_a_backup_for_a_public_key_is_verified_by_its_digest(tmp_path: Path) -> None:
    """A changed file is deleted."""
    key = ArchiveKey(recipients=(str(pyrage.x25519.Identity.generate().to_public()),))
    storage, digest = FolderStorage(tmp_path), hashlib.sha256(b"content").digest()
    (tmp_path / NAME).write_bytes(b"content")
    await backups._verify_or_delete(storage, NAME, key, digest)
    (tmp_path / NAME).write_bytes(b"changed")
    with pytest.raises(ArchiveBroken, match="differs from the written one"):
        await backups._verify_or_delete(storage, NAME, key, digest)
    assert storage.list_backups() == []


async def test_a_finished_backup_needs_no_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention follows, and the exit code is 0, also if NATS does not answer at the end."""

    def reject(*_: object) -> None:
        raise CommandError("NATS rejects the user backup")

    monkeypatch.setattr(Stores, "connect_bus", reject)
    await backups.report_backup(NEW, None, FinishedBackup(1, 2))
    assert capsys.readouterr().err.endswith("as a metric: NATS rejects the user backup\n")


def test_one_sentence_says_what_a_backup_holds() -> None:
    """With the tenant, if it has only one."""
    moment = BackupMoment(
        0, None, {"UPLINK": StreamPosition(9, 1, 8), "EVENTS": StreamPosition(9, 1, 7)}
    )
    assert backups.describe_content(ArchiveHead("1.2.3", 1), moment, [2, 3]) == (
        "the backup holds the secrets, 2 collections with 5 documents and 2 streams with 15 "
        "messages, has the state of 1970-01-01 00:00:00 UTC, and was written by 1.2.3"
    )
    assert backups.describe_content(ArchiveHead("1.2.3", 1, "acme"), moment, [2]).startswith(
        "the backup of the tenant acme holds 1 collections with 2 documents, has"
    )


async def test_a_restore_into_a_directory_stores_each_stream_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The backup may be of a cluster, but the directory gets one nats-server."""
    given: list[int | None] = []

    @asynccontextmanager
    async def run_servers(*_: object) -> AsyncIterator[Stores]:
        yield NEW

    async def restore_installation(*_: object, replicas: int | None, **__: object) -> None:
        given.append(replicas)

    monkeypatch.setattr(backups, "run_servers", run_servers)
    monkeypatch.setattr(backups, "restore_installation", restore_installation)
    monkeypatch.setattr(backups, "log_content", lambda _: None)
    options = Namespace(
        data=tmp_path, only_secrets=False, mongo_url=None, replicas=None, verify=False
    )
    secrets = Secrets(state=msgspec.json.encode(State()))
    await backups._restore_installation(options, secrets, cast("VerifiedArchive", None))
    assert given == [1]
