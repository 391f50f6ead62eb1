"""`thingway backup verify`: restore a backup into temporary stores, compare."""

import contextlib
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path

from deploy.backup.archive import ArchiveReader, VerifiedArchive
from deploy.backup.archive_key import read_archive_key
from deploy.backup.installation import restore_installation
from deploy.backup.storage import find_backup
from deploy.backup.stores import Stores
from deploy.local import lock
from deploy.local.backups import (
    decode_state_without_addresses,
    errors_as_one_line,
    interrupt_when_terminated,
    log,
    log_content,
    read_head_and_secrets,
    report_backup,
    run_servers,
    wait_for_stores,
)
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.state import Addresses, State
from libs.common.contracts.backups import FinishedBackup


async def verify(options: Namespace) -> None:
    """Restore a backup into temporary stores, compare them, and report the result."""
    interrupt_when_terminated()
    key = read_archive_key(options)
    with errors_as_one_line():
        storage, name = find_backup(options.source)
        log(f"restoring {storage.locate(name)}")
        began = time.monotonic()
        with storage.open_backup(name) as source, ArchiveReader(source, key) as reader:
            archive, secrets = read_head_and_secrets(reader)
            if archive.head.tenant is not None:
                raise CommandError(f"{name} has one tenant only: verify a backup of all tenants")
            async with _open_scratch_stores(
                options, decode_state_without_addresses(secrets)
            ) as stores:
                await restore_installation(stores, archive, log, 1, compare=True)
        seconds = time.monotonic() - began
        log_content(archive)
        log(f"the restored data equal the backup; the restore took {seconds:.0f} s")
        await _report_verification(options, archive, seconds)


@contextlib.asynccontextmanager
async def _open_scratch_stores(options: Namespace, state: State) -> AsyncIterator[Stores]:
    """Yield empty stores: temporary servers, or those that the options name."""
    if not options.scratch_mongo_url and not options.scratch_nats_url:
        with tempfile.TemporaryDirectory(
            prefix="thingway-verify-", dir=options.scratch
        ) as directory:
            async with run_servers(Path(directory) / "data", state) as stores:
                yield stores
        return
    if not options.scratch_mongo_url or not options.scratch_nats_url:
        raise CommandError("--scratch-mongo-url and --scratch-nats-url must be given together")
    stores = Stores(
        state=state,
        mongo_url=options.scratch_mongo_url,
        nats=Addresses("", "", options.scratch_nats_url),
        redis_url="",
        has_logins=False,
    )
    await wait_for_stores(stores)
    yield stores


async def _report_verification(
    options: Namespace, archive: VerifiedArchive, seconds: float
) -> None:
    """Report the verification to the platform that made the backup, if it runs."""
    if options.nats_url:
        state = states.load(options.data)
        addresses = Addresses("", "", options.nats_url, os.environ.get("THINGWAY_CA_FILE", ""))
    elif lock.is_held(options.data):
        state, addresses = states.load_with_addresses(options.data)
    else:
        log(f"the result is not shown as a metric: no platform runs with data in {options.data}")
        return
    stores = Stores(state=state, mongo_url="", nats=addresses, redis_url="")
    backup = FinishedBackup(archive.moment.at, 0, restore_seconds=seconds)
    await report_backup(stores, None, backup)
