"""`thingway backup`, `thingway restore` and `thingway migrate`."""

import asyncio
import contextlib
import errno
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pymongo.errors import PyMongoError

from deploy.backup.archive import (
    ArchiveBroken,
    Key,
    Reader,
    VerifiedArchive,
    Writer,
    read_key,
    read_records,
)
from deploy.backup.installation import back_up, check_logins
from deploy.backup.installation import restore as restore_stores
from deploy.backup.records import Head, Record, Secrets
from deploy.backup.stores import Stores
from deploy.backup.tenants import back_up_tenant, restore_tenant
from deploy.local import lock, servers
from deploy.local.process import base_environment
from deploy.local.supervisor import Supervisor, run_concurrently, wait_ready
from deploy.platform import ports
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import create_private_directory, writing_private
from deploy.platform.migrations import MIGRATIONS
from deploy.platform.mongo_server import raise_compatibility
from deploy.platform.nats_grants import ADMIN, BACKUP
from deploy.platform.state import Addresses, State
from libs.common.bus import RpcClient
from libs.common.clock import from_ms, now_ms
from libs.common.contracts.auth import Done
from libs.common.contracts.backups import RECORD_BACKUP, FinishedBackup
from libs.common.errors import ThingwayError
from libs.common.jobs import retry
from libs.common.store.migrations import DatabaseTooNew, due, migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import RedisError
from libs.common.version import VERSION

_LISTENERS = ("nats", "mqtt")
_START_SECONDS = 600.0
STREAM = "-"
"""File name for standard output or input."""
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
RESTORING = "restoring"
"""Marker file of a restore in progress; `up` does not start while it exists."""


async def backup(options: Namespace) -> None:
    """Write a backup; a file gets its final name when it is complete."""
    key = read_key(options)
    with errors_as_one_line():
        if options.to == STREAM:
            out = _require_redirected(sys.stdout.buffer)
            stores = open_stores(options)
            await _report(stores, options.tenant, await _write(stores, out, key, options.tenant))
            return
        directory = create_private_directory(Path(options.to))
        what = "" if options.tenant is None else f"-{options.tenant}"
        path = directory / f"thingway{what}-{from_ms(now_ms()):%Y%m%dT%H%M%SZ}.backup"
        stores = open_stores(options)
        with writing_private(path) as (out, written):
            finished = await _write(stores, out, key, options.tenant)
            if options.verify:
                with written.open("rb") as source:
                    await _verify(source, key)
        disk = shutil.disk_usage(directory)
        size = path.stat().st_size
        await _report(
            stores,
            options.tenant,
            FinishedBackup(finished.at, size, options.verify, disk.used, disk.total),
        )
        print(path)


async def _report(stores: Stores, tenant: str | None, backup: FinishedBackup) -> None:
    """Report a backup of all tenants to `device`, which shows its age as a metric."""
    if tenant is not None:
        return
    async with stores.bus(BACKUP) as bus:
        try:
            await RpcClient(bus).call(RECORD_BACKUP, backup, Done)
        except ThingwayError as error:
            _log(f"the backup is complete, but its age is not shown as a metric: {error}")


async def _write(stores: Stores, out: BinaryIO, key: Key, tenant: str | None) -> FinishedBackup:
    """Write a backup of all tenants or of one; return its time and size."""
    writer = Writer(out, key)

    async def put(record: Record) -> None:
        await asyncio.to_thread(writer.write, record)

    if tenant is None:
        moment = await back_up(stores, put, _log)
    else:
        moment = await back_up_tenant(stores, tenant, put, _log)
    await asyncio.to_thread(writer.close)
    _log(f"the backup has the state of {from_ms(moment.at):%Y-%m-%d %H:%M:%S} UTC")
    return FinishedBackup(moment.at, writer.size)


async def _verify(source: BinaryIO, key: Key) -> VerifiedArchive:
    """Read an archive to its end; raise `ArchiveBroken` if it was modified."""
    with Reader(source, key) as reader:
        archive = VerifiedArchive(reader)
        async for _ in read_records(archive):
            pass
    return archive


async def restore(options: Namespace) -> None:
    """Restore a backup into an empty data directory or into stores given by URLs."""
    key = read_key(options)
    with errors_as_one_line(), _open(options.file) as source:
        if options.dry_run:
            _print_summary(await _verify(source, key))
            return
        with Reader(source, key) as reader:
            archive = VerifiedArchive(reader)
            head, secrets = next(archive), next(archive)
            if not isinstance(head, Head) or not isinstance(secrets, Secrets):
                raise ArchiveBroken("the archive does not start with its head and secrets")
            if head.tenant is None:
                await _restore_whole(options, secrets, archive)
            else:
                stores = open_stores(options)
                await restore_tenant(
                    stores, head.tenant, secrets, archive, _log, compare=options.verify
                )
                _print_summary(archive)


async def _restore_whole(options: Namespace, secrets: Secrets, archive: VerifiedArchive) -> None:
    state = msgspec.json.decode(secrets.state, type=State)
    state.ports, state.addresses = {}, None
    if options.only_secrets:
        create_private_directory(options.data)
        _save_secrets(options.data, state)
    elif options.mongo_url:
        _save_secrets(options.data, state)
        stores = _stores_from_urls(options, state)
        await _wait_for_stores(stores)
        await restore_stores(stores, archive, _log, options.replicas, compare=options.verify)
        _print_summary(archive)
    else:
        async with _run_servers(options.data, state) as stores:
            await restore_stores(stores, archive, _log, options.replicas, compare=options.verify)
        _print_summary(archive)


def open_stores(options: Namespace) -> Stores:
    """Return the stores of a data directory's platform, or the stores that URLs name."""
    state = states.load(options.data)
    if options.bootstrap is not None:
        state.adopt_first_data(states.load(options.bootstrap))
    if options.mongo_url:
        return _stores_from_urls(options, state)
    _, addresses = states.load_addressed(options.data)
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


async def _wait_for_stores(stores: Stores) -> None:
    """Wait up to 10 minutes until new stores accept the installation's logins."""
    errors = CommandError, PyMongoError, RedisError, NatsError, TimeoutError
    try:
        await check_logins(stores)
    except errors as error:
        _log(f"waiting for the stores: {error}")
        try:
            async with asyncio.timeout(_START_SECONDS):
                await retry(partial(check_logins, stores), *errors)
        except TimeoutError:
            raise CommandError(f"the stores were not ready in time: {error}") from error


def _save_secrets(directory: Path, state: State) -> None:
    """Save the secrets, unless the directory already has them."""
    existing = states.load(directory)
    if existing.secrets and existing.secrets != existing.secrets | state.secrets:
        file = directory / states.FILE_NAME
        raise CommandError(f"{file} contains the secrets of another installation")
    if not existing.secrets:
        states.save(directory, state)


@contextlib.asynccontextmanager
async def _run_servers(directory: Path, state: State) -> AsyncIterator[Stores]:
    """Run the servers of an empty data directory, without services."""
    found = servers.Programs.find()
    lock_handle = lock.acquire(directory)
    if present := sorted({entry.name for entry in os.scandir(directory)} - {lock.FILE_NAME}):
        raise CommandError(
            f"{directory} is not empty ({present[0]}): restore into an empty directory"
        )
    (directory / RESTORING).touch()
    state.hosts = [ports.LOOPBACK]  # a cluster too: `up --cluster` extends it again
    state.claim_ports([*servers.internal_ports(state), *_LISTENERS], reserved=())
    port, mqtt_port = (state.ports.pop(name) for name in _LISTENERS)
    listeners = servers.NatsListeners(ports.LOOPBACK, port, mqtt_port)
    addresses = Addresses("", "", f"nats://{listeners.host}:{listeners.port}")
    base = base_environment(os.environ)
    supervisor = Supervisor(
        create_private_directory(directory / "logs"), print_line=_log, keep_open=(lock_handle,)
    )
    try:
        context = servers.ServerContext(directory, state, base)
        wanted = servers.prepare_servers(found, context, [listeners], addresses)
        states.save(directory, state)
        await run_concurrently(
            [wait_ready(supervisor.start(each.spec), each.ready) for each in wanted]
        )
        yield Stores.from_launcher(state, addresses)
    finally:
        await supervisor.stop()
    (directory / RESTORING).unlink()


def _print_summary(archive: VerifiedArchive) -> None:
    moment = archive.moment
    documents = sum(end.count for end in archive.collections.values())
    at = f"{from_ms(moment.at):%Y-%m-%d %H:%M:%S} UTC"
    _log(f"written by version {archive.head.version}, state of {at}")
    _log(f"{len(archive.collections)} collections with {documents} documents")
    messages = sum(position.messages for position in moment.streams.values())
    _log(f"{len(moment.streams)} streams with {messages} messages")


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _require_redirected(out: BinaryIO) -> BinaryIO:
    if out.isatty():
        raise CommandError("a backup cannot go to a terminal: redirect it, or give a directory")
    return out


@contextlib.contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    if file == STREAM:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source


@contextlib.contextmanager
def errors_as_one_line() -> Iterator[None]:
    """Turn errors of stores and files into a `CommandError` of one line."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise CommandError(f"{type(error).__name__}: {error}") from error
        raise CommandError(
            f"the disk is full, and the incomplete file was deleted: {error}. Free space, or "
            "choose another directory"
        ) from error
    except (PyMongoError, NatsError, RedisError, TimeoutError) as error:
        raise CommandError(f"{type(error).__name__}: {error}") from error


_ANSWER_SECONDS = 2.0


class _Pong(msgspec.Struct):
    """Reply of a service to `$SRV.PING` (nats.micro)."""

    name: str
    version: str


async def run_migrations(options: Namespace) -> None:
    """Run due migrations.

    Raises `CommandError` if a newer version contracted a database, and with `--contract` while
    processes of another version run.
    """
    with errors_as_one_line():
        stores = open_stores(options)
        if options.contract:
            await _require_single_version(stores)
        for user in stores.users:
            mongo = Mongo(stores.mongo_url_for(user), user.database)
            try:
                await _migrate(mongo, user.database, contract=options.contract)
            finally:
                await mongo.close()
        if options.contract and stores.has_administrator:
            async with stores.connect_administrator() as client:
                if version := await raise_compatibility(client):
                    print(f"MongoDB: the data now have the format of {version}")


async def _migrate(mongo: Mongo, name: str, *, contract: bool) -> None:
    wanted = MIGRATIONS[name]
    pending = await due(mongo.database, wanted, contract=contract)
    if not pending:
        print(f"{name}: no migration is due")
    for migration in pending:
        print(f"{name} {migration.number}: {migration.title}")
    try:
        await migrate(mongo.database, wanted, contract=contract)
    except DatabaseTooNew as error:
        raise CommandError(str(error)) from error
    left = await due(mongo.database, wanted, contract=True)
    if left:
        print(f"{name}: {len(left)} more with --contract, once no older version will run again")


async def _require_single_version(stores: Stores) -> None:
    """Raise `CommandError` if a process of another version replies."""
    found: dict[str, str] = {}

    async def collect(answer: Msg) -> None:
        pong = msgspec.json.decode(answer.data, type=_Pong)
        if pong.version != VERSION:
            found[pong.name] = pong.version

    async with stores.bus(ADMIN) as bus:
        inbox = bus.client.new_inbox()
        await bus.client.subscribe(inbox, cb=collect)
        await bus.client.publish("$SRV.PING", reply=inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.Event().wait()
    if found:
        others = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        raise CommandError(f"stop the processes of another version than {VERSION}: {others}")
