"""`thingway backup`, `thingway backup list` and `thingway restore`."""

import asyncio
import contextlib
import errno
import hashlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from nats.errors import Error as NatsError
from pymongo.errors import PyMongoError

from deploy.backup.archive import (
    ArchiveBroken,
    ArchiveReader,
    ArchiveWriter,
    VerifiedArchive,
    read_records,
)
from deploy.backup.archive_key import ArchiveKey, read_archive_key
from deploy.backup.installation import (
    back_up_installation,
    check_restore_logins,
    restore_installation,
)
from deploy.backup.records import ArchiveHead, ArchiveRecord, BackupMoment, CollectionEnd, Secrets
from deploy.backup.storage import (
    Storage,
    build_backup_name,
    choose_expired,
    find_backup,
    open_storage,
)
from deploy.backup.stores import Stores
from deploy.backup.tenant_restore import restore_tenant
from deploy.backup.tenants import back_up_tenant
from deploy.local import lock, servers
from deploy.local.process import inheritable_environment
from deploy.local.supervisor import Supervisor, run_concurrently, wait_ready
from deploy.platform import ports
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import create_private_directory
from deploy.platform.nats_grants import BACKUP_USER
from deploy.platform.state import Addresses, State
from libs.common.bus import RpcClient
from libs.common.clock import from_ms, now_ms
from libs.common.contracts.auth import Done
from libs.common.contracts.backups import RECORD_BACKUP, FinishedBackup
from libs.common.errors import ThingwayError
from libs.common.jobs import retry
from libs.common.store.redis import RedisError
from libs.common.version import VERSION

_LISTENER_PORT_NAMES = ("nats", "mqtt")
_STORES_READY_SECONDS = 600.0
_READ_BYTES = 1024**2
STANDARD_STREAM = "-"
"""File name that means standard output or input."""
FULL_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


async def backup(options: Namespace) -> None:
    """Write a backup, verify it if required, and then delete expired backups."""
    interrupt_when_terminated()
    key = read_archive_key(options)
    has_retention = bool(options.keep or options.keep_days)
    with errors_as_one_line():
        if options.to == STANDARD_STREAM:
            if has_retention:
                raise CommandError("--keep and --keep-days require a folder or s3://BUCKET/PREFIX")
            out = _require_redirected(sys.stdout.buffer)
            stores = locate_stores(options)
            finished, _ = await _write_archive(stores, out, key, options.tenant)
            await report_backup(stores, options.tenant, finished)
            return
        storage = open_storage(options.to)
        name = build_backup_name(now_ms(), options.tenant)
        stores = locate_stores(options)
        with storage.create_backup(name) as out:
            finished, digest = await _write_archive(stores, out, key, options.tenant)
        if is_verified := options.verify or has_retention:
            await _verify_or_delete(storage, name, key, digest)
        used, size = storage.measure_used_and_total()
        finished = msgspec.structs.replace(
            finished, verified=is_verified, disk_used=used, disk_size=size
        )
        await report_backup(stores, options.tenant, finished)
        print(storage.locate(name))
        for expired in choose_expired(
            storage.list_backups(), name, options.keep, options.keep_days
        ):
            storage.delete_backup(expired.name)
            log(f"deleted {storage.locate(expired.name)}")


def list_backups(options: Namespace) -> None:
    """Print the complete backups of a folder or bucket, oldest first."""
    with errors_as_one_line():
        stored = open_storage(options.source).list_backups()
    if options.json:
        print(msgspec.json.encode(stored).decode())
        return
    for each in stored:
        tenant = "all tenants" if each.tenant is None else f"tenant {each.tenant}"
        print(f"{each.name}  {each.size / 1024**2:.1f} MiB  {tenant}")


def interrupt_when_terminated() -> None:
    """Handle SIGTERM like Ctrl-C, so that an incomplete backup is deleted."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


async def report_backup(stores: Stores, tenant: str | None, backup: FinishedBackup) -> None:
    """Report a backup of all tenants, or the test of one, to `device` for its metrics.

    Reports nothing for a backup of one tenant. A failure to report is only printed.
    """
    if tenant is not None:
        return
    try:
        async with stores.connect_bus(BACKUP_USER) as bus:
            await RpcClient(bus).call(RECORD_BACKUP, backup, Done)
    except (CommandError, ThingwayError) as error:
        log(f"the result is not shown as a metric: {error}")


async def _write_archive(
    stores: Stores, out: BinaryIO, key: ArchiveKey, tenant: str | None
) -> tuple[FinishedBackup, bytes]:
    """Write a backup of all tenants or of one; return its report and SHA-256."""
    writer = ArchiveWriter(out, key)
    counts: list[int] = []

    async def write_record(record: ArchiveRecord) -> None:
        if isinstance(record, CollectionEnd):
            counts.append(record.count)
        await asyncio.to_thread(writer.write, record)

    if tenant is None:
        moment = await back_up_installation(stores, write_record, log)
    else:
        moment = await back_up_tenant(stores, tenant, write_record, log)
    await asyncio.to_thread(writer.close)
    log(describe_content(ArchiveHead(VERSION, 0, tenant), moment, counts))
    return FinishedBackup(moment.at, writer.output.size), writer.output.digest


async def _verify_or_delete(storage: Storage, name: str, key: ArchiveKey, digest: bytes) -> None:
    """Read a stored backup; delete it and raise if it differs from the written one."""
    try:
        with storage.open_backup(name) as source:
            await (
                _require_digest(source, digest)
                if key.can_only_encrypt
                else _verify_archive(source, key)
            )
    except ArchiveBroken:
        storage.delete_backup(name)
        raise


async def _require_digest(source: BinaryIO, digest: bytes) -> None:
    digest_found = hashlib.sha256()
    while chunk := await asyncio.to_thread(source.read, _READ_BYTES):
        digest_found.update(chunk)
    if digest_found.digest() != digest:
        raise ArchiveBroken("the stored backup differs from the written one")


async def _verify_archive(source: BinaryIO, key: ArchiveKey) -> VerifiedArchive:
    """Read an archive to its end; raise `ArchiveBroken` if it was modified."""
    with ArchiveReader(source, key) as reader:
        archive = VerifiedArchive(reader)
        async for _ in read_records(archive):
            pass
    return archive


async def restore(options: Namespace) -> None:
    """Restore a backup into an empty data directory or into stores given by URLs."""
    key = read_archive_key(options)
    with errors_as_one_line(), _open_source(options.file) as source:
        if options.dry_run:
            log_content(await _verify_archive(source, key))
            return
        with ArchiveReader(source, key) as reader:
            archive, secrets = read_head_and_secrets(reader)
            head = archive.head
            if head.tenant is None:
                await _restore_installation(options, secrets, archive)
            else:
                stores = locate_stores(options)
                await restore_tenant(
                    stores, head.tenant, secrets, archive, log, compare=options.verify
                )
                log_content(archive)


def read_head_and_secrets(reader: ArchiveReader) -> tuple[VerifiedArchive, Secrets]:
    """Read the first two records; return the archive, now after them, and its secrets."""
    archive = VerifiedArchive(reader)
    head, secrets = next(archive), next(archive)
    if not isinstance(head, ArchiveHead) or not isinstance(secrets, Secrets):
        raise ArchiveBroken("the archive does not start with its head and secrets")
    return archive, secrets


def decode_state_without_addresses(secrets: Secrets) -> State:
    """Return the archived installation's state without its ports and addresses."""
    state = msgspec.json.decode(secrets.state, type=State)
    state.ports, state.addresses = {}, None
    return state


async def _restore_installation(
    options: Namespace, secrets: Secrets, archive: VerifiedArchive
) -> None:
    state = decode_state_without_addresses(secrets)
    if options.only_secrets:
        create_private_directory(options.data)
        _save_secrets(options.data, state)
    elif options.mongo_url:
        _save_secrets(options.data, state)
        stores = _stores_from_urls(options, state)
        await wait_for_stores(stores)
        await restore_installation(stores, archive, log, options.replicas, compare=options.verify)
        log_content(archive)
    else:
        async with run_servers(options.data, state) as stores:  # one server of each kind
            await restore_installation(stores, archive, log, replicas=1, compare=options.verify)
        log_content(archive)


def locate_stores(options: Namespace) -> Stores:
    """Return the stores of a data directory's platform, or the stores that URLs name."""
    state = states.load(options.data)
    if options.bootstrap is not None:
        state.adopt_first_data(states.load(options.bootstrap))
    if options.mongo_url:
        return _stores_from_urls(options, state)
    _, addresses = states.load_with_addresses(options.data)
    if not lock.is_held(options.data):
        raise CommandError(f"no platform runs with data in {options.data}: run `thingway up`")
    return Stores.from_launcher(state, addresses)


def _stores_from_urls(options: Namespace, state: State) -> Stores:
    if not options.nats_url or not options.redis_url:
        raise CommandError(
            "--mongo-url, --nats-url and --redis-url (THINGWAY_MONGO_URL, THINGWAY_NATS_URL and "
            "THINGWAY_REDIS_URL) must be given together"
        )
    return Stores(
        state=state,
        mongo_url=options.mongo_url,
        nats=Addresses("", "", options.nats_url, os.environ.get("THINGWAY_CA_FILE", "")),
        redis_url=options.redis_url,
    )


async def wait_for_stores(stores: Stores) -> None:
    """Wait up to 10 minutes until new stores accept the installation's logins."""
    errors = CommandError, PyMongoError, RedisError, NatsError, TimeoutError
    try:
        await check_restore_logins(stores)
    except errors as error:
        log(f"waiting for the stores: {error}")
        try:
            async with asyncio.timeout(_STORES_READY_SECONDS):
                await retry(partial(check_restore_logins, stores), *errors)
        except TimeoutError:
            raise CommandError(f"the stores were not ready in time: {error}") from error


def _save_secrets(directory: Path, state: State) -> None:
    """Save `state` if the directory has no secrets yet.

    Raises `CommandError` if the directory has the secrets of another installation.
    """
    existing = states.load(directory)
    if existing.secrets and existing.secrets != existing.secrets | state.secrets:
        file = directory / states.FILE_NAME
        raise CommandError(f"{file} contains the secrets of another installation")
    if not existing.secrets:
        states.save(directory, state)


@contextlib.asynccontextmanager
async def run_servers(directory: Path, state: State) -> AsyncIterator[Stores]:
    """Run MongoDB, NATS and Redis in an empty directory; yield their addresses."""
    server_programs = servers.ServerPrograms.find()
    lock_handle = lock.acquire(directory)
    if present := sorted({entry.name for entry in os.scandir(directory)} - {lock.FILE_NAME}):
        raise CommandError(
            f"{directory} is not empty ({present[0]}): restore into an empty directory"
        )
    (directory / lock.RESTORE_MARKER).touch()
    state.hosts = [ports.LOOPBACK]  # a cluster too: `up --cluster` extends it again
    state.claim_ports([*servers.server_port_names(state), *_LISTENER_PORT_NAMES], reserved=())
    port, mqtt_port = (state.ports.pop(name) for name in _LISTENER_PORT_NAMES)
    listeners = servers.NatsListeners(ports.LOOPBACK, port, mqtt_port)
    addresses = Addresses("", "", f"nats://{listeners.host}:{listeners.port}")
    base = inheritable_environment(os.environ)
    supervisor = Supervisor(
        create_private_directory(directory / "logs"), print_line=log, keep_open=(lock_handle,)
    )
    try:
        context = servers.ServerContext(directory, state, base)
        server_list = servers.prepare_servers(server_programs, context, [listeners], addresses)
        states.save(directory, state)
        await run_concurrently(
            [wait_ready(supervisor.start(each.spec), each.ready) for each in server_list]
        )
        yield Stores.from_launcher(state, addresses)
    finally:
        await supervisor.stop()
    (directory / lock.RESTORE_MARKER).unlink()


def describe_content(head: ArchiveHead, moment: BackupMoment, counts: Collection[int]) -> str:
    """Return a sentence about a backup; `counts` are its documents by collection."""
    content = f"{len(counts)} collections with {sum(counts)} documents"
    if head.tenant is None:
        messages = sum(position.messages for position in moment.streams.values())
        content = (
            f"the secrets, {content} and {len(moment.streams)} streams with {messages} messages"
        )
    subject = "the backup" if head.tenant is None else f"the backup of the tenant {head.tenant}"
    at = f"{from_ms(moment.at):%Y-%m-%d %H:%M:%S} UTC"
    return f"{subject} holds {content}, has the state of {at}, and was written by {head.version}"


def log_content(archive: VerifiedArchive) -> None:
    """Print the sentence of `describe_content` about an archive read to its end."""
    counts = [end.count for end in archive.collections.values()]
    log(describe_content(archive.head, archive.moment, counts))


def log(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)


def _require_redirected(out: BinaryIO) -> BinaryIO:
    if out.isatty():
        raise CommandError("a backup cannot go to a terminal: redirect it, or give a directory")
    return out


@contextlib.contextmanager
def _open_source(file: str) -> Iterator[BinaryIO]:
    if file == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    storage, name = find_backup(file)
    with storage.open_backup(name) as source:
        log(f"reading {storage.locate(name)}")
        yield source


@contextlib.contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Turn errors of stores and files into a `CommandError` of one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK_ERRNOS:
            raise CommandError(f"{type(error).__name__}: {error}") from error
        raise CommandError(
            f"the disk is full, and the incomplete file was deleted: {error}. Free space, or "
            "choose another directory"
        ) from error
    except (PyMongoError, NatsError, RedisError, TimeoutError) as error:
        raise CommandError(f"{type(error).__name__}: {error}") from error
