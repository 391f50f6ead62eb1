"""`thingway backup` and `thingway restore`."""

import asyncio
import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from nats.errors import Error as NatsError
from pymongo.errors import PyMongoError

from deploy.backup.archive import ArchiveBroken, Key, Reader, Writer, key_of
from deploy.backup.backing_up import back_up
from deploy.backup.records import Head, Record, Secrets
from deploy.backup.restoring import Checked, records_of
from deploy.backup.restoring import restore as restore_stores
from deploy.backup.stores import Stores
from deploy.backup.tenants import back_up_tenant, restore_tenant
from deploy.local import lock, servers
from deploy.local.process import base_environment
from deploy.local.supervisor import Supervisor, together, until_ready
from deploy.platform import ports
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import make_private_directory, writing_private
from deploy.platform.state import Addresses, State
from libs.common.clock import from_ms, now_ms

_DOORS = ("nats", "mqtt")
STREAM = "-"
"""Standard output or input instead of a file."""
RESTORING = "restoring"
"""File in a data directory while a backup is restored there; `up` does not start before its end."""


async def backup(given: Namespace) -> None:
    """Write a backup; a file gets its name when it is complete."""
    key = key_of(given)
    with named_errors():
        if given.to == STREAM:
            await _write(stores_of(given), _terminal(sys.stdout.buffer), key, given.tenant)
            return
        directory = make_private_directory(Path(given.to))
        what = "" if given.tenant is None else f"-{given.tenant}"
        path = directory / f"thingway{what}-{from_ms(now_ms()):%Y%m%dT%H%M%SZ}.backup"
        with writing_private(path) as (out, written):
            await _write(stores_of(given), out, key, given.tenant)
            if given.verify:
                with written.open("rb") as source:
                    await _read_through(source, key)
        print(path)


async def _write(stores: Stores, out: BinaryIO, key: Key, tenant: str | None) -> None:
    writer = Writer(out, key)

    async def put(record: Record) -> None:
        await asyncio.to_thread(writer.write, record)

    if tenant is None:
        moment = await back_up(stores, put, _say)
    else:
        moment = await back_up_tenant(stores, tenant, put, _say)
    await asyncio.to_thread(writer.close)
    _say(f"the backup is of {from_ms(moment.at):%Y-%m-%d %H:%M:%S} UTC")


async def _read_through(source: BinaryIO, key: Key) -> Checked:
    """Read an archive to its end; raises `ArchiveBroken` where it is not as it was written."""
    with Reader(source, key) as reader:
        checked = Checked(reader)
        async for _ in records_of(checked):
            pass
    return checked


async def restore(given: Namespace) -> None:
    """Restore a backup into an empty data directory, or into empty stores that URLs name."""
    key = key_of(given)
    with named_errors(), _opened(given.file) as source:
        if given.dry_run:
            _tell(await _read_through(source, key))
            return
        with Reader(source, key) as reader:
            checked = Checked(reader)
            head, secrets = next(checked), next(checked)
            if not isinstance(head, Head) or not isinstance(secrets, Secrets):
                raise ArchiveBroken("the archive does not begin with what it is")
            if head.tenant is None:
                await _restore_whole(given, secrets, checked)
            else:
                stores = stores_of(given)
                await restore_tenant(
                    stores, head.tenant, secrets, checked, _say, compare=given.verify
                )
                _tell(checked)


async def _restore_whole(given: Namespace, secrets: Secrets, checked: Checked) -> None:
    state = msgspec.json.decode(secrets.state, type=State)
    state.ports, state.addresses = {}, None
    if given.only_secrets:
        make_private_directory(given.data)
        _keep(given.data, state)
    elif given.mongo_url:
        _keep(given.data, state)
        stores = _named_by_url(given, state)
        await restore_stores(stores, checked, _say, given.replicas, compare=given.verify)
        _tell(checked)
    else:
        async with _started(given.data, state) as stores:
            await restore_stores(stores, checked, _say, given.replicas, compare=given.verify)
        _tell(checked)


def stores_of(given: Namespace) -> Stores:
    """The stores of the platform of a data directory, or those that URLs name with its secrets."""
    state = states.load(given.data)
    if given.bootstrap is not None:
        state.begin_with(states.load(given.bootstrap))
    if given.mongo_url:
        return _named_by_url(given, state)
    _, addresses = states.load_addressed(given.data)
    if not lock.is_held(given.data):
        raise CommandError(f"no platform runs with data in {given.data}")
    return Stores.local(state, addresses)


def _named_by_url(given: Namespace, state: State) -> Stores:
    if not given.nats_url or not given.redis_url:
        raise CommandError("--mongo-url, --nats-url and --redis-url belong together")
    return Stores(
        state=state,
        mongo_url=given.mongo_url,
        nats=Addresses("", "", given.nats_url, os.environ.get("THINGWAY_CA_FILE", "")),
        redis_url=given.redis_url,
    )


def _keep(directory: Path, state: State) -> None:
    """Write the secrets, unless these are there already."""
    there = states.load(directory)
    if there.secrets and there.secrets != there.secrets | state.secrets:
        raise CommandError(f"{directory / states.FILE_NAME} has secrets of another installation")
    if not there.secrets:
        states.save(directory, state)


@contextlib.asynccontextmanager
async def _started(directory: Path, state: State) -> AsyncIterator[Stores]:
    """The servers of an empty data directory, without services, as long as it takes."""
    found = servers.Programs.find()
    handle = lock.acquire(directory)
    if there := sorted({one.name for one in os.scandir(directory)} - {lock.FILE_NAME}):
        raise CommandError(
            f"{directory} is not empty ({there[0]}): restore into an empty directory"
        )
    (directory / RESTORING).touch()
    state.hosts = [ports.LOOPBACK]  # also of a cluster: `up --cluster` makes it one again
    state.claim_ports([*servers.internal_ports(state), *_DOORS], reserved=())
    port, mqtt_port = (state.ports.pop(one) for one in _DOORS)
    doors = servers.NatsDoors(ports.LOOPBACK, port, mqtt_port)
    addresses = Addresses("", "", f"nats://{doors.host}:{doors.port}")
    base = base_environment(os.environ)
    supervisor = Supervisor(
        make_private_directory(directory / "logs"), say=_say, keep_open=(handle,)
    )
    try:
        ground = servers.Ground(directory, state, base)
        wanted = servers.embedded(found, ground, [doors], addresses)
        states.save(directory, state)
        await together([until_ready(supervisor.start(one.spec), one.ready) for one in wanted])
        yield Stores.local(state, addresses)
    finally:
        await supervisor.stop()
    (directory / RESTORING).unlink()


def _tell(checked: Checked) -> None:
    moment = checked.moment
    documents = sum(one.count for one in checked.collections.values())
    _say(f"made by version {checked.head.version}, of {from_ms(moment.at):%Y-%m-%d %H:%M:%S} UTC")
    _say(f"{len(checked.collections)} collections with {documents} documents")
    messages = sum(one.messages for one in moment.streams.values())
    _say(f"{len(moment.streams)} streams with {messages} messages")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _terminal(out: BinaryIO) -> BinaryIO:
    if out.isatty():
        raise CommandError("a backup is not for a terminal: redirect it, or name a directory")
    return out


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STREAM:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """What goes wrong in stores and files, as one line."""
    try:
        yield
    except (PyMongoError, NatsError, OSError, TimeoutError) as error:
        raise CommandError(f"{type(error).__name__}: {error}") from error
