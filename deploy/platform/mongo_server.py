"""MongoDB servers: a replica set of one or three members, with a user per service."""

import asyncio
import hashlib
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
ADMIN_USER = "admin"
ADMIN_SECRET = "mongo.admin"  # noqa: S105 - the name of the secret
"""Name of the secret with the administrator's password."""
BACKUP_USER = "backup"
"""The user that may read all databases of the services."""
READER_ROLE = "thingway_reading"
"""Role of `BACKUP_USER`."""
_CACHE_GB, _CLUSTER_CACHE_GB = "0.5", "0.25"
"""Cache of a single server, and of each member of a cluster."""
_DIRTY_CACHE_LIMITS = "eviction_dirty_target=20,eviction_dirty_trigger=50"
"""Percent of the cache that may be dirty before eviction starts, and before writers must help.

MongoDB's defaults of 5 and 20 suit large caches. In a small one, the growing leaf pages (one per
device) exceed them and are written and read again constantly. Same as in `docker-compose.yml`.
"""
_SESSION_LIMIT = "session_max=4000"
"""Maximum number of concurrent operations and open transactions.

MongoDB's default of 33,000 needs 33 MiB more. A container keeps the default.
"""
_JOURNAL_MS = "500"
"""Maximum ms until MongoDB writes the journal for writes that do not wait for it; ours wait.

MongoDB's default of 100 wakes an unused server ten times a second.
"""
_OPLOG_MB = "1024"
_MAX_TRANSACTION_SECONDS = 10
"""Seconds after which MongoDB aborts a transaction; ours take at most a second.

A transaction of a killed process locks its documents until MongoDB aborts it after 1 to 1.5 times
this value. The default of 60 s would block reports that change these documents for up to 90 s. Same
as in `docker-compose.yml`.
"""
_SNAPSHOT_HISTORY_SECONDS = 0
"""Seconds for which MongoDB keeps old document versions for snapshot reads.

No service uses them, and each changed record would be written twice (docs/decisions/0038). A
backup raises the value while it runs. Same as in `docker-compose.yml`.
"""
FAULT_BY_EXIT_CODE = {
    62: "this mongod cannot read the data of another version: upgrade from 6.0 to 7.0 and then to "
    "8.0 (docs/how-to/operations.md#mongodb-versions)"
}
"""Explanation of mongod's exit codes."""
_COMPATIBILITY_PARAMETER = "featureCompatibilityVersion"
_CONFIRMATION_SINCE_VERSION = 7
"""First version whose `setFeatureCompatibilityVersion` requires `confirm`; 6.0 rejects that."""
_USER_NOT_FOUND = 11
_ROLE_NOT_FOUND = 31
_AUTHENTICATION_FAILED = 18
_NOT_YET_INITIALIZED_CODE = 94
"""Error code while the server looks for itself at its old address, up to 30 s."""
_RECONFIG_RETRY_CODES = (74, 103, 109, 308)
"""Error codes while a new member does not respond, or during another reconfiguration."""
_SERVING_STATES = (1, 2)
"""Member states of a primary and a secondary."""
_PAUSE_SECONDS = 0.05

Client = AsyncMongoClient[dict[str, Any]]


@dataclass(frozen=True)
class DatabaseUser:
    """A user of MongoDB: it writes one database, or only reads several (`reads`)."""

    name: str
    password: str
    database: str
    """The database that it writes and authenticates against; `admin` for a reader."""
    reads: tuple[str, ...] = ()
    """Databases that a reader may read."""
    role: str = "readWrite"
    """Role of a user who is not a reader."""

    def url(self, *members: str) -> str:
        """Return the connection string for a replica set of `host:port`s."""
        return (
            f"mongodb://{self.name}:{self.password}@{','.join(members)}/{self.database}"
            f"?authSource={self.database}&replicaSet={REPLICA_SET}"
        )


def server_command(
    program: Path, data: Path, host: str, port: int, key_file: Path, *, cluster: bool = False
) -> list[str]:
    """Return the command line of a server with authentication and a small cache.

    A cluster member gets two seconds to hand over its primary role when it stops.
    """
    timeout = f"shutdownTimeoutMillisForSignaledShutdown={2000 if cluster else 100}"
    return [
        *bare_server_command(
            program, data, port, host, cache=_CLUSTER_CACHE_GB if cluster else _CACHE_GB
        ),
        *("--keyFile", str(key_file), "--oplogSize", _OPLOG_MB, "--setParameter", timeout),
    ]


def bare_server_command(
    program: Path, data: Path, port: int, host: str = LOOPBACK, *, cache: str = _CACHE_GB
) -> list[str]:
    """Return the command line of a server without authentication; `cache` is in GB."""
    options = {
        "--dbpath": str(data),
        "--bind_ip": host,
        "--port": str(port),
        "--replSet": REPLICA_SET,
        "--wiredTigerCacheSizeGB": cache,
        "--journalCommitInterval": _JOURNAL_MS,
        "--wiredTigerEngineConfigString": f"{_DIRTY_CACHE_LIMITS},{_SESSION_LIMIT}",
    }
    parameters = {
        "diagnosticDataCollectionEnabled": "false",
        "transactionLifetimeLimitSeconds": _MAX_TRANSACTION_SECONDS,
        "minSnapshotHistoryWindowInSeconds": _SNAPSHOT_HISTORY_SECONDS,
    }
    settings = [("--setParameter", f"{name}={value}") for name, value in parameters.items()]
    flags = ("--nounixsocket", "--quiet")
    return [str(program), *chain(*options.items(), flags, *settings)]


async def set_up_replica_set(
    members: Sequence[str], admin_password: str, users: list[DatabaseUser]
) -> None:
    """Set up the replica set of running servers, its members and users; repeatable.

    `members` are their addresses (`host:port`). The first call creates the replica set, the
    administrator (through the localhost exception) and the service users. Later calls update the
    addresses, add new members and update passwords. Starts again if a server restarts meanwhile;
    the caller limits the time.
    """
    await retry(partial(_set_up_replica_set, members, admin_password, users), ConnectionFailure)


async def _set_up_replica_set(
    members: Sequence[str], admin_password: str, users: list[DatabaseUser]
) -> None:
    prepared = [each for each in members if await _has_admin(each, admin_password)]
    if not prepared:
        prepared = [members[0]]
        await _initiate(members[0])
        async with _connect_directly(members[0]) as client:
            roles = [{"role": "root", "db": "admin"}]
            await client.admin.command("createUser", ADMIN_USER, pwd=admin_password, roles=roles)
    async with _connect_directly(prepared[0], admin_password) as client:
        await _update_addresses(client, members)
    login = f"{ADMIN_USER}:{admin_password}@"
    async with _connect_url(f"{login}{','.join(members)}/?replicaSet={REPLICA_SET}") as client:
        await _add_members(client, members)
        await _put_changed_users(client, users)


async def set_up_with_key_file(
    members: Sequence[str], key: str, admin_password: str, users: list[DatabaseUser]
) -> None:
    """Set up the replica set of servers on other hosts, with the key file; repeatable.

    `members` are `host:port`. Later calls add new members and remove none. `key` is the content of
    the key file: with it the function logs in like a member, because the localhost exception
    applies on the same host only. The caller limits the time.
    """
    await retry(
        partial(_set_up_with_key_file, members, key, admin_password, users), ConnectionFailure
    )


async def _set_up_with_key_file(
    members: Sequence[str], key: str, admin_password: str, users: list[DatabaseUser]
) -> None:
    async with _connect_with_key(members[0], key) as client:
        await _initiate_with(client, members[0])
    async with _connect_with_key(",".join(members), key, replicaSet=REPLICA_SET) as client:
        await _add_members(client, members)
        await _put_user(client, DatabaseUser(ADMIN_USER, admin_password, "admin", role="root"))
        await _put_changed_users(client, users)


def _connect_with_key(hosts: str, key: str, **options: Any) -> Client:
    options = options or {"directConnection": True}
    return AsyncMongoClient(
        f"mongodb://{hosts}/",
        username="__system",
        password="".join(key.split()),
        authSource="local",
        serverSelectionTimeoutMS=2000,
        **options,
    )


async def initiate_replica_set(port: int) -> None:
    """Make the server the only member of its replica set; return when it is primary.

    The caller limits the time.
    """
    await retry(partial(_initiate, f"{LOOPBACK}:{port}"), ConnectionFailure)


async def _initiate(member: str) -> None:
    async with _connect_directly(member) as client:
        await _initiate_with(client, member)
        await _wait_for_primary(client)


async def _initiate_with(client: Client, member: str) -> None:
    if "setName" not in await client.admin.command("hello"):
        members = [{"_id": 0, "host": member}]
        config = {"_id": REPLICA_SET, "version": 1, "members": members}
        await client.admin.command("replSetInitiate", config)


def _connect_directly(member: str, admin_password: str | None = None) -> Client:
    login = f"{ADMIN_USER}:{admin_password}@" if admin_password else ""
    return _connect_url(f"{login}{member}/?directConnection=true")


def _connect_url(address: str) -> Client:
    return AsyncMongoClient(f"mongodb://{address}", serverSelectionTimeoutMS=2000)


async def _has_admin(member: str, admin_password: str) -> bool:
    async with _connect_directly(member, admin_password) as client:
        try:
            await client.admin.command("ping")
        except OperationFailure as error:
            if error.code == _AUTHENTICATION_FAILED:
                return False
            raise
    return True


async def _update_addresses(client: Client, members: Sequence[str]) -> None:
    """Update the addresses of members that moved, e.g. because a port was in use."""
    config = await _read_config(client)
    moved = [each | {"host": members[each["_id"]]} for each in config["members"]]
    if moved != config["members"]:
        changed = {**config, "version": config["version"] + 1, "members": moved}
        await client.admin.command("replSetReconfig", changed, force=True)


async def _add_members(client: Client, members: Sequence[str]) -> None:
    """Add new members one by one, and wait until all have caught up."""
    while True:
        config = await _read_config(client)
        existing = config["members"]
        if len(existing) >= len(members):
            break
        added = [*existing, {"_id": len(existing), "host": members[len(existing)]}]
        changed = {**config, "version": config["version"] + 1, "members": added}
        try:
            await client.admin.command("replSetReconfig", changed)
        except OperationFailure as error:
            if error.code not in _RECONFIG_RETRY_CODES:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
    while True:
        status = await client.admin.command("replSetGetStatus")
        if all(each["state"] in _SERVING_STATES for each in status["members"]):
            return
        await asyncio.sleep(_PAUSE_SECONDS)


async def _read_config(client: Client) -> dict[str, Any]:
    while True:
        try:
            answer = await client.admin.command("replSetGetConfig")
        except OperationFailure as error:
            if error.code != _NOT_YET_INITIALIZED_CODE:
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
    """Return when a server responds, in any state; the caller limits the time."""

    async def ping() -> None:
        async with _connect_directly(member) as client:
            await client.admin.command("hello")

    await retry(ping, ConnectionFailure)


async def raise_compatibility_version(client: Client) -> str | None:
    """Permit the running version's data format; return the version, None if unchanged.

    Afterwards the previous version of MongoDB cannot read the data, and the next one can.
    """
    admin = client.admin
    major, minor, *_ = (await admin.command("buildInfo"))["versionArray"]
    version = f"{major}.{minor}"
    current_version = await admin.command({"getParameter": 1, _COMPATIBILITY_PARAMETER: 1})
    if current_version[_COMPATIBILITY_PARAMETER]["version"] == version:
        return None
    options: dict[str, Any] = {"confirm": True} if major >= _CONFIRMATION_SINCE_VERSION else {}
    await admin.command("setFeatureCompatibilityVersion", version, **options)
    return version


async def _put_changed_users(client: Client, users: list[DatabaseUser]) -> None:
    """Create or update the users that differ; MongoDB hashes a password for 50 ms."""
    users_info = await client.admin.command("usersInfo", {"forAllDBs": True})
    custom_data = {user["_id"]: user.get("customData") for user in users_info["users"]}
    changed = [
        user
        for user in users
        if custom_data.get(f"{user.database}.{user.name}") != _digest_user(user)
    ]
    await asyncio.gather(*(_put_user(client, user) for user in changed))


def _digest_user(user: DatabaseUser) -> dict[str, str]:
    """Return a digest of the user's properties, to detect a change."""
    return {"digest": hashlib.sha256(repr(user).encode()).hexdigest()}


async def _put_user(client: Client, user: DatabaseUser) -> None:
    database = client[user.database]
    roles = [{"role": user.role, "db": user.database}]
    if user.reads:
        await _put_reader_role(database, user)
        roles = [{"role": READER_ROLE, "db": user.database}]
    options: dict[str, Any] = {
        "pwd": user.password,
        "roles": roles,
        "customData": _digest_user(user),
    }
    try:
        await database.command("updateUser", user.name, **options)
    except OperationFailure as error:
        if error.code != _USER_NOT_FOUND:
            raise
        await database.command("createUser", user.name, **options)


async def _put_reader_role(database: AsyncDatabase[dict[str, Any]], user: DatabaseUser) -> None:
    """Create the role that reads databases and may extend the snapshot history."""
    reading = ["find", "listCollections", "listIndexes"]
    privileges: list[dict[str, Any]] = [
        {"resource": {"db": name, "collection": ""}, "actions": reading} for name in user.reads
    ]
    parameters = ["getParameter", "setParameter"]
    privileges.append({"resource": {"cluster": True}, "actions": parameters})
    try:
        await database.command("updateRole", READER_ROLE, privileges=privileges, roles=[])
    except OperationFailure as error:
        if error.code != _ROLE_NOT_FOUND:
            raise
        await database.command("createRole", READER_ROLE, privileges=privileges, roles=[])
