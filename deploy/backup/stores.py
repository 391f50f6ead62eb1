"""Addresses and users of an installation's MongoDB, NATS and Redis."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from nats.errors import Error as NatsError

from deploy.backup import databases
from deploy.platform import admin, mongo_server, services
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client, DatabaseUser
from deploy.platform.ports import LOOPBACK
from deploy.platform.services import SERVICES
from deploy.platform.state import Addresses, State
from libs.common.bus import Bus
from libs.common.store.redis import connect_redis

DATABASES = tuple(dict.fromkeys(s.database for s in SERVICES if s.database is not None))
_REDIS_READER_USER = "auth"
"""The Redis user that may read every key."""


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Addresses of an installation's stores. A URL with credentials is used unchanged."""

    state: State
    mongo_url: str
    nats: Addresses
    redis_url: str
    """Empty for temporary stores: backups contain no data of Redis."""
    has_logins: bool = True
    """False for a temporary MongoDB without access control."""

    @classmethod
    def from_launcher(cls, state: State, addresses: Addresses) -> "Stores":
        """Return the addresses of the stores that the launcher started on this machine."""
        return cls(
            state=state,
            mongo_url=f"mongodb://{LOOPBACK}:{state.ports['mongod']}/?directConnection=true",
            nats=addresses,
            redis_url=f"redis://{LOOPBACK}:{state.ports['redis']}/0",
        )

    def connect_mongo_reader(self) -> AbstractAsyncContextManager[Client]:
        """Connect to MongoDB as the user that reads all databases."""
        return databases.connect(self.mongo_url_for(services.backup_user(self.state)))

    @property
    def has_administrator_password(self) -> bool:
        """Return whether the administrator's password of this MongoDB is known."""
        return mongo_server.ADMIN_SECRET in self.state.secrets and "@" not in self.mongo_url

    def connect_mongo_administrator(self) -> AbstractAsyncContextManager[Client]:
        """Connect to MongoDB as its administrator."""
        password = self.state.secrets[mongo_server.ADMIN_SECRET]
        return databases.connect(self._build_mongo_url(mongo_server.ADMIN_USER, password, "admin"))

    @property
    def database_users(self) -> list[DatabaseUser]:
        """Return the MongoDB user of each database."""
        return services.database_users(self.state)

    def mongo_url_for(self, user: DatabaseUser) -> str:
        """Return MongoDB's URL for a user."""
        if not self.has_logins:
            return self.mongo_url
        return self._build_mongo_url(user.name, user.password, user.database)

    @contextlib.asynccontextmanager
    async def connect_mongo_writers(self) -> AsyncIterator[dict[str, Client]]:
        """Yield a client per database, logged in as the user of its service."""
        async with contextlib.AsyncExitStack() as stack:
            yield {
                user.database: await stack.enter_async_context(
                    databases.connect(self.mongo_url_for(user))
                )
                for user in self.database_users
            }

    @contextlib.asynccontextmanager
    async def connect_bus(self, user: str) -> AsyncIterator[Bus]:
        """Connect to NATS as `user`; raise `CommandError` if that fails."""
        try:
            password = self.state.secrets.get(f"nats.{user}", "")
            client = await admin.log_in_once(self.nats, password, user)
        except (NatsError, OSError, TimeoutError) as error:
            host = _host(self.nats.nats_url)
            raise CommandError(f"NATS at {host} rejects the user {user}: {error!r}") from error
        try:
            yield Bus(client, client.jetstream())
        finally:
            await client.close()

    async def count_redis_keys(self) -> int:
        """Return the number of keys in Redis, read as a user that may read all."""
        if not self.redis_url:
            return 0
        password = self.state.secrets.get(f"redis.{_REDIS_READER_USER}", "")
        async with connect_redis(
            _add_login(self.redis_url, _REDIS_READER_USER, password)
        ) as client:
            return int(await client.dbsize())

    def _build_mongo_url(self, user: str, password: str, source: str) -> str:
        url = _add_login(self.mongo_url, user, password)
        if url == self.mongo_url:
            return url
        return f"{url}{'&' if urlsplit(url).query else '?'}authSource={source}"


def _add_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return url
    login = f"{quote(user)}:{quote(password)}@"
    return parts._replace(netloc=login + parts.netloc, path=parts.path or "/").geturl()


def _host(url: str) -> str:
    """Return the host of a URL, without credentials, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2]
