"""The embedded MongoDB: a replica set of one or three, with a user per service."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConnectionFailure, OperationFailure

from deploy.platform.ports import LOOPBACK
from libs.common.jobs import retry

REPLICA_SET = "rs0"
ADMIN = "admin"
BACKUP = "backup"
"""The user who reads every database of ours."""
READING = "thingway_reading"
"""Its role."""
_CACHE_GB, _CLUSTER_CACHE_GB = "0.5", "0.25"
"""Of a server alone, and of each of three."""
_DIRTY = "eviction_dirty_target=20,eviction_dirty_trigger=50"
"""Percent of the cache that may wait for the checkpoint of every minute, and where writers wait.
MongoDB's 5 and 20 are for large caches: of a small one the leaves that grow, one a device, are
more, and are written and read again all the time. `docker-compose.yml` says the same."""
_OPLOG_MB = "1024"
_TRANSACTION_SECONDS = 10
"""Ours take a second at most. One that a killed process left open locks what it has written,
and MongoDB ends it after this and at most half as much again; its default of 60 s is up to
90 s in which no report of such a device is dealt with. `docker-compose.yml` says the same."""
_HISTORY_SECONDS = 0
"""For which MongoDB keeps what is no longer so, for reads of the past; no service asks for that,
and each record that is changed would be written twice (docs/decisions/0038). A backup sets it for
as long as it takes. `docker-compose.yml` says the same."""
_USER_NOT_FOUND = 11
_ROLE_NOT_FOUND = 31
_AUTHENTICATION_FAILED = 18
_NOT_YET_INITIALIZED = 94
"""While the server looks for itself at its old address, up to 30 s."""
_NOT_YET = (74, 103, 109, 308)
"""A new member does not answer yet, or another change of the members is under way: one that
MongoDB makes itself for a new one."""
_SERVING = (1, 2)
"""States of a member: primary, secondary."""
_PAUSE_SECONDS = 0.05

Client = AsyncMongoClient[dict[str, Any]]


@dataclass(frozen=True)
class DatabaseUser:
    """A user who may read and write one database and nothing else, or read some (`BACKUP`)."""

    name: str
    password: str
    database: str
    """That it writes and logs in to; `admin` where it reads."""
    reads: tuple[str, ...] = ()
    """What it may read, if it writes nothing."""

    def url(self, *members: str) -> str:
        """The connection string of this user for a replica set of `host:port`s."""
        return (
            f"mongodb://{self.name}:{self.password}@{','.join(members)}/{self.database}"
            f"?authSource={self.database}&replicaSet={REPLICA_SET}"
        )


def command(
    program: Path, data: Path, host: str, port: int, key_file: Path, *, cluster: bool = False
) -> list[str]:
    """The command line: on one address, clients must log in, little memory.

    A member of a cluster hands over when it is told to end, for which it gets two seconds.
    """
    timeout = f"shutdownTimeoutMillisForSignaledShutdown={2000 if cluster else 100}"
    return [
        *bare_command(program, data, port, host, cache=_CLUSTER_CACHE_GB if cluster else _CACHE_GB),
        *("--keyFile", str(key_file), "--oplogSize", _OPLOG_MB, "--setParameter", timeout),
    ]


def bare_command(
    program: Path, data: Path, port: int, host: str = LOOPBACK, *, cache: str = _CACHE_GB
) -> list[str]:
    """The command line without logins, for tests; `cache` in GB."""
    options = {
        "--dbpath": str(data),
        "--bind_ip": host,
        "--port": str(port),
        "--replSet": REPLICA_SET,
        "--wiredTigerCacheSizeGB": cache,
        "--wiredTigerEngineConfigString": _DIRTY,
    }
    parameters = {
        "diagnosticDataCollectionEnabled": "false",
        "transactionLifetimeLimitSeconds": _TRANSACTION_SECONDS,
        "minSnapshotHistoryWindowInSeconds": _HISTORY_SECONDS,
    }
    settings = [("--setParameter", f"{name}={value}") for name, value in parameters.items()]
    flags = ("--nounixsocket", "--quiet")
    return [str(program), *chain(*options.items(), flags, *settings)]


async def set_up(members: Sequence[str], admin_password: str, users: list[DatabaseUser]) -> None:
    """Bring servers that have just been started to the wanted state; repeatable.

    `members` are their addresses (`host:port`). First start: the replica set, the administrator
    (by the localhost exception), the service users. Later: the replica set follows the addresses
    and grows by new members, the users follow their passwords. Begins again when a server is
    restarted meanwhile; the caller bounds the time.
    """
    await retry(partial(_set_up, members, admin_password, users), ConnectionFailure)


async def _set_up(members: Sequence[str], admin_password: str, users: list[DatabaseUser]) -> None:
    known = [one for one in members if await _has_admin(one, admin_password)]
    if not known:
        known = [members[0]]
        await _initiate(members[0])
        async with _connect(members[0]) as client:
            roles = [{"role": "root", "db": "admin"}]
            await client.admin.command("createUser", ADMIN, pwd=admin_password, roles=roles)
    async with _connect(known[0], admin_password) as client:
        await _follow_addresses(client, members)
    login = f"{ADMIN}:{admin_password}@"
    async with _client(f"{login}{','.join(members)}/?replicaSet={REPLICA_SET}") as client:
        await _grow(client, members)
        for user in users:
            await _put_user(client, user)


async def set_up_members(
    members: Sequence[str], key: str, admin_password: str, users: list[DatabaseUser]
) -> None:
    """Make a replica set of servers that each call themselves as `members` says; repeatable.

    `members` are `host:port`. Later calls add those that are new, and remove none. `key` is the
    key file's content: with it this logs in as members do to each other, because the localhost
    exception serves whoever is on the same host only. The caller bounds the time.
    """
    await retry(partial(_set_up_members, members, key, admin_password, users), ConnectionFailure)


async def _set_up_members(
    members: Sequence[str], key: str, admin_password: str, users: list[DatabaseUser]
) -> None:
    async with _connect_member(members[0], key) as client:
        await _initiate_with(client, members[0])
    async with _connect_member(",".join(members), key, replicaSet=REPLICA_SET) as client:
        await _grow(client, members)
        await _put_user(client, DatabaseUser(ADMIN, admin_password, "admin"), role="root")
        for user in users:
            await _put_user(client, user)


def _connect_member(hosts: str, key: str, **options: Any) -> Client:
    options = options or {"directConnection": True}
    return AsyncMongoClient(
        f"mongodb://{hosts}/",
        username="__system",
        password="".join(key.split()),
        authSource="local",
        serverSelectionTimeoutMS=2000,
        **options,
    )


async def initiate(port: int) -> None:
    """Make the server the only member of its replica set and wait until it takes writes.

    The caller bounds the time.
    """
    await retry(partial(_initiate, f"{LOOPBACK}:{port}"), ConnectionFailure)


async def _initiate(member: str) -> None:
    async with _connect(member) as client:
        await _initiate_with(client, member)
        await _wait_for_primary(client)


async def _initiate_with(client: Client, member: str) -> None:
    if "setName" not in await client.admin.command("hello"):
        members = [{"_id": 0, "host": member}]
        config = {"_id": REPLICA_SET, "version": 1, "members": members}
        await client.admin.command("replSetInitiate", config)


def _connect(member: str, admin_password: str | None = None) -> Client:
    login = f"{ADMIN}:{admin_password}@" if admin_password else ""
    return _client(f"{login}{member}/?directConnection=true")


def _client(address: str) -> Client:
    return AsyncMongoClient(f"mongodb://{address}", serverSelectionTimeoutMS=2000)


async def _has_admin(member: str, admin_password: str) -> bool:
    async with _connect(member, admin_password) as client:
        try:
            await client.admin.command("ping")
        except OperationFailure as error:
            if error.code == _AUTHENTICATION_FAILED:
                return False
            raise
    return True


async def _follow_addresses(client: Client, members: Sequence[str]) -> None:
    """Rewrite addresses of members that have moved, e.g. because their old port was taken."""
    config = await _read_config(client)
    moved = [one | {"host": members[one["_id"]]} for one in config["members"]]
    if moved != config["members"]:
        changed = {**config, "version": config["version"] + 1, "members": moved}
        await client.admin.command("replSetReconfig", changed, force=True)


async def _grow(client: Client, members: Sequence[str]) -> None:
    """Add members that are new, one after another, and wait until all have caught up."""
    while True:
        config = await _read_config(client)
        held = config["members"]
        if len(held) >= len(members):
            break
        added = [*held, {"_id": len(held), "host": members[len(held)]}]
        changed = {**config, "version": config["version"] + 1, "members": added}
        try:
            await client.admin.command("replSetReconfig", changed)
        except OperationFailure as error:
            if error.code not in _NOT_YET:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
    while True:
        status = await client.admin.command("replSetGetStatus")
        if all(one["state"] in _SERVING for one in status["members"]):
            return
        await asyncio.sleep(_PAUSE_SECONDS)


async def _read_config(client: Client) -> dict[str, Any]:
    while True:
        try:
            answer = await client.admin.command("replSetGetConfig")
        except OperationFailure as error:
            if error.code != _NOT_YET_INITIALIZED:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            config: dict[str, Any] = answer["config"]
            return config


async def _wait_for_primary(client: Client) -> None:
    while True:
        hello = await client.admin.command("hello")
        if hello.get("isWritablePrimary"):
            return
        await asyncio.sleep(_PAUSE_SECONDS)


async def wait_ready(member: str) -> None:
    """Return when a server answers, whatever its state; the caller bounds the time."""

    async def ping() -> None:
        async with _connect(member) as client:
            await client.admin.command("hello")

    await retry(ping, ConnectionFailure)


async def _put_user(client: Client, user: DatabaseUser, role: str = "readWrite") -> None:
    database = client[user.database]
    roles = [{"role": role, "db": user.database}]
    if user.reads:
        await _put_role(database, user)
        roles = [{"role": READING, "db": user.database}]
    try:
        await database.command("updateUser", user.name, pwd=user.password, roles=roles)
    except OperationFailure as error:
        if error.code != _USER_NOT_FOUND:
            raise
        await database.command("createUser", user.name, pwd=user.password, roles=roles)


async def _put_role(database: AsyncDatabase[dict[str, Any]], user: DatabaseUser) -> None:
    """The role of who reads: also how long MongoDB keeps what a snapshot reads is its to set."""
    reading = ["find", "listCollections", "listIndexes"]
    privileges: list[dict[str, Any]] = [
        {"resource": {"db": one, "collection": ""}, "actions": reading} for one in user.reads
    ]
    parameters = ["getParameter", "setParameter"]
    privileges.append({"resource": {"cluster": True}, "actions": parameters})
    try:
        await database.command("updateRole", READING, privileges=privileges, roles=[])
    except OperationFailure as error:
        if error.code != _ROLE_NOT_FOUND:
            raise
        await database.command("createRole", READING, privileges=privileges, roles=[])
