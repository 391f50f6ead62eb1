"""`thingway migrate`: due migrations, and the last step of an upgrade."""

import asyncio
import contextlib
from argparse import Namespace

import msgspec
from nats.aio.msg import Msg

from deploy.backup.stores import Stores
from deploy.local.backups import errors_as_one_line, locate_stores
from deploy.platform.errors import CommandError
from deploy.platform.migrations import MIGRATIONS_BY_DATABASE
from deploy.platform.mongo_server import raise_compatibility_version
from deploy.platform.nats_grants import ADMIN_USER
from libs.common.store.migrations import DatabaseTooNew, list_pending_migrations, migrate
from libs.common.store.mongo import Mongo
from libs.common.version import VERSION

_PING_REPLY_SECONDS = 2.0


class _PingReply(msgspec.Struct):
    """Reply of a service to `$SRV.PING` (nats.micro)."""

    name: str
    version: str


async def run_migrations(options: Namespace) -> None:
    """Run due migrations.

    Raises `CommandError` if a newer version contracted a database, and with `--contract` while
    processes of another version run.
    """
    with errors_as_one_line():
        stores = locate_stores(options)
        if options.contract:
            await _require_single_version(stores)
        for user in stores.database_users:
            mongo = Mongo(stores.mongo_url_for(user), user.database)
            try:
                await _migrate_database(mongo, user.database, contract=options.contract)
            finally:
                await mongo.close()
        if options.contract and stores.has_administrator_password:
            async with stores.connect_mongo_administrator() as client:
                if version := await raise_compatibility_version(client):
                    print(f"MongoDB: the data now have the format of {version}")


async def _migrate_database(mongo: Mongo, name: str, *, contract: bool) -> None:
    migrations = MIGRATIONS_BY_DATABASE[name]
    pending = await list_pending_migrations(mongo.database, migrations, contract=contract)
    if not pending:
        print(f"{name}: no migration is due")
    for migration in pending:
        print(f"{name} {migration.number}: {migration.title}")
    try:
        await migrate(mongo.database, migrations, contract=contract)
    except DatabaseTooNew as error:
        raise CommandError(str(error)) from error
    contracting = await list_pending_migrations(mongo.database, migrations, contract=True)
    if contracting:
        print(
            f"{name}: {len(contracting)} more with --contract, once no older version will run again"
        )


async def _require_single_version(stores: Stores) -> None:
    """Raise `CommandError` if a process of another version replies."""
    versions: dict[str, str] = {}

    async def collect(answer: Msg) -> None:
        pong = msgspec.json.decode(answer.data, type=_PingReply)
        if pong.version != VERSION:
            versions[pong.name] = pong.version

    async with stores.connect_bus(ADMIN_USER) as bus:
        inbox = bus.client.new_inbox()
        await bus.client.subscribe(inbox, cb=collect)
        await bus.client.publish("$SRV.PING", reply=inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PING_REPLY_SECONDS):
                await asyncio.Event().wait()
    if versions:
        others = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        raise CommandError(f"stop the processes of another version than {VERSION}: {others}")
