"""Where the stores of an installation are, and as whom they are opened."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from nats.errors import Error as NatsError

from deploy.backup import databases
from deploy.platform import admin, services
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import Client, DatabaseUser
from deploy.platform.ports import LOOPBACK
from deploy.platform.services import SERVICES
from deploy.platform.state import Addresses, State
from libs.common.bus import Bus
from libs.common.store.redis import Redis

DATABASES = tuple(dict.fromkeys(one.database for one in SERVICES if one.database is not None))
_REDIS_USER = "auth"
"""May look at every key."""


@dataclass(frozen=True, kw_only=True)
class Stores:
    """The stores of one installation. A URL with a login is used as it is."""

    state: State
    mongo_url: str
    nats: Addresses
    redis_url: str

    @classmethod
    def local(cls, state: State, addresses: Addresses) -> "Stores":
        """Those that the launcher has started."""
        return cls(
            state=state,
            mongo_url=f"mongodb://{LOOPBACK}:{state.ports['mongod']}/?directConnection=true",
            nats=addresses,
            redis_url=f"redis://{LOOPBACK}:{state.ports['redis']}/0",
        )

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[Client]:
        """MongoDB for who reads all databases at one time."""
        url = self.mongo_of(services.backup_user(self.state))
        async with databases.connect(url) as client:
            yield client

    @property
    def users(self) -> list[DatabaseUser]:
        """Who writes which database."""
        return services.database_users(self.state)

    def mongo_of(self, user: DatabaseUser) -> str:
        """MongoDB's URL for a user."""
        return self._mongo(user.name, user.password, user.database)

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[dict[str, Client]]:
        """MongoDB by database, each as the user of its service."""
        async with contextlib.AsyncExitStack() as stack:
            yield {
                user.database: await stack.enter_async_context(
                    databases.connect(self.mongo_of(user))
                )
                for user in self.users
            }

    @contextlib.asynccontextmanager
    async def bus(self, user: str) -> AsyncIterator[Bus]:
        """NATS as one of its users."""
        try:
            password = self.state.secrets.get(f"nats.{user}", "")
            client = await admin.log_in(self.nats, password, user)
        except (NatsError, OSError, TimeoutError) as error:
            place = _place(self.nats.nats_url)
            raise CommandError(f"NATS lets {user} not in at {place}: {error!r}") from error
        try:
            yield Bus(client, client.jetstream())
        finally:
            await client.close()

    @contextlib.asynccontextmanager
    async def redis(self) -> AsyncIterator[Redis]:
        """Redis, all keys."""
        password = self.state.secrets.get(f"redis.{_REDIS_USER}", "")
        async with Redis.from_url(_with_login(self.redis_url, _REDIS_USER, password)) as client:
            yield client

    def _mongo(self, user: str, password: str, source: str) -> str:
        url = _with_login(self.mongo_url, user, password)
        if url == self.mongo_url:
            return url
        return f"{url}{'&' if urlsplit(url).query else '?'}authSource={source}"


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return url
    login = f"{quote(user)}:{quote(password)}@"
    return parts._replace(netloc=login + parts.netloc, path=parts.path or "/").geturl()


def _place(url: str) -> str:
    """A URL without its login, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2]
