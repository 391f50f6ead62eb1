"""The embedded MongoDB: a replica set of one, with a user per service."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConnectionFailure, OperationFailure

from deploy.platform.ports import LOOPBACK

REPLICA_SET = "rs0"
ADMIN = "admin"
BACKUP = "backup"
"""The user who reads every database of ours."""
READING = "thingway_reading"
"""Its role."""
_CACHE_GB = "0.5"
_OPLOG_MB = "1024"
_TRANSACTION_SECONDS = 10
"""Ours take a second at most. One that a killed process left open locks what it has written,
and MongoDB ends it after this and at most half as much again; its default of 60 s is up to
90 s in which no report of such a device is dealt with. `docker-compose.yml` says the same."""
_USER_NOT_FOUND = 11
_ROLE_NOT_FOUND = 31
_AUTHENTICATION_FAILED = 18
_NOT_YET_INITIALIZED = 94
"""While the server looks for itself at its old address, up to 30 s."""
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

    def url(self, port: int) -> str:
        """The connection string of this user for an embedded server."""
        return (
            f"mongodb://{self.name}:{self.password}@{LOOPBACK}:{port}/{self.database}"
            f"?authSource={self.database}&replicaSet={REPLICA_SET}"
        )


def command(program: Path, data: Path, port: int, key_file: Path) -> list[str]:
    """The command line: loopback only, clients must log in, little memory."""
    return [
        *bare_command(program, data, port),
        "--keyFile",
        str(key_file),
        "--oplogSize",
        _OPLOG_MB,
    ]


def bare_command(program: Path, data: Path, port: int) -> list[str]:
    """The command line without logins, for tests.

    `shutdownTimeoutMillisForSignaledShutdown`: 15 s by default, in which a member of a
    larger set would hand over.
    """
    return [
        str(program),
        "--dbpath",
        str(data),
        "--bind_ip",
        LOOPBACK,
        "--port",
        str(port),
        "--replSet",
        REPLICA_SET,
        "--wiredTigerCacheSizeGB",
        _CACHE_GB,
        "--nounixsocket",
        "--quiet",
        "--setParameter",
        "diagnosticDataCollectionEnabled=false",
        "--setParameter",
        "shutdownTimeoutMillisForSignaledShutdown=100",
        "--setParameter",
        f"transactionLifetimeLimitSeconds={_TRANSACTION_SECONDS}",
    ]


async def set_up(port: int, admin_password: str, users: list[DatabaseUser]) -> None:
    """Bring a server that has just been started to the wanted state; repeatable.

    First start: the replica set, the administrator (by the localhost exception), the
    service users. Later: the replica set's member follows the port, the users their
    passwords. Begins again when the server is restarted meanwhile; the caller bounds the
    time.
    """
    await _patiently(lambda: _set_up(port, admin_password, users))


async def _patiently(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except ConnectionFailure:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return


async def _set_up(port: int, admin_password: str, users: list[DatabaseUser]) -> None:
    if not await _has_admin(port, admin_password):
        await _initiate(port)
        async with _connect(port) as client:
            roles = [{"role": "root", "db": "admin"}]
            await client.admin.command("createUser", ADMIN, pwd=admin_password, roles=roles)
    async with _connect(port, admin_password) as client:
        await _follow_port(client, port)
        await _wait_for_primary(client)
        for user in users:
            await _put_user(client, user)


async def initiate(port: int) -> None:
    """Make the server the only member of its replica set and wait until it takes writes.

    The caller bounds the time.
    """
    await _patiently(lambda: _initiate(port))


async def _initiate(port: int) -> None:
    async with _connect(port) as client:
        if "setName" not in await client.admin.command("hello"):
            await client.admin.command("replSetInitiate", _members(port, version=1))
        await _wait_for_primary(client)


def _connect(port: int, admin_password: str | None = None) -> Client:
    login = f"{ADMIN}:{admin_password}@" if admin_password else ""
    url = f"mongodb://{login}{LOOPBACK}:{port}/?directConnection=true"
    return AsyncMongoClient(url, serverSelectionTimeoutMS=2000)


def _members(port: int, version: int) -> dict[str, Any]:
    members = [{"_id": 0, "host": f"{LOOPBACK}:{port}"}]
    return {"_id": REPLICA_SET, "version": version, "members": members}


async def _has_admin(port: int, admin_password: str) -> bool:
    async with _connect(port, admin_password) as client:
        try:
            await client.admin.command("ping")
        except OperationFailure as error:
            if error.code == _AUTHENTICATION_FAILED:
                return False
            raise
    return True


async def _follow_port(client: Client, port: int) -> None:
    """Rewrite the member's address after its old port was taken by somebody else."""
    config = await _read_config(client)
    wanted = _members(port, int(config["version"]) + 1)
    if config["members"][0]["host"] != wanted["members"][0]["host"]:
        await client.admin.command("replSetReconfig", {**config, **wanted}, force=True)


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


async def _put_user(client: Client, user: DatabaseUser) -> None:
    database = client[user.database]
    roles = [{"role": "readWrite", "db": user.database}]
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
