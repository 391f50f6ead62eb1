"""`thingway migrate`: bring the databases to this version, or take the last step of an upgrade."""

import asyncio
import contextlib
from argparse import Namespace

import msgspec
from nats.aio.msg import Msg

from deploy.backup.stores import Stores
from deploy.local.backups import named_errors, stores_of
from deploy.platform.errors import CommandError
from deploy.platform.migrations import MIGRATIONS
from deploy.platform.nats_grants import ADMIN
from libs.common.store.migrations import due, migrate
from libs.common.store.mongo import Mongo
from libs.common.version import VERSION

_ANSWER_SECONDS = 2.0


class _Pong(msgspec.Struct):
    """What a service answers to `$SRV.PING`, as nats.micro has it."""

    name: str
    version: str


async def run(given: Namespace) -> None:
    """Run what is due; raises `CommandError` while processes of another version answer."""
    with named_errors():
        stores = stores_of(given)
        if given.contract:
            await _require_alone(stores)
        for user in stores.users:
            mongo = Mongo(stores.mongo_of(user), user.database)
            try:
                await _migrate(mongo, user.database, contract=given.contract)
            finally:
                await mongo.close()


async def _migrate(mongo: Mongo, name: str, *, contract: bool) -> None:
    wanted = MIGRATIONS[name]
    for migration in await due(mongo.database, wanted, contract=contract):
        print(f"{name} {migration.number}: {migration.title}")
    await migrate(mongo.database, wanted, contract=contract)
    left = await due(mongo.database, wanted, contract=True)
    if left:
        print(f"{name}: {len(left)} more with --contract, once the older version is gone for good")


async def _require_alone(stores: Stores) -> None:
    """Raise `CommandError` when a process of another version answers."""
    found: dict[str, str] = {}

    async def heard(answer: Msg) -> None:
        pong = msgspec.json.decode(answer.data, type=_Pong)
        if pong.version != VERSION:
            found[pong.name] = pong.version

    async with stores.bus(ADMIN) as bus:
        inbox = bus.client.new_inbox()
        await bus.client.subscribe(inbox, cb=heard)
        await bus.client.publish("$SRV.PING", reply=inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await asyncio.Event().wait()
    if found:
        told = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
        raise CommandError(f"processes of another version than {VERSION} run: {told}")
