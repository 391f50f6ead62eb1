"""Talk to the services as the administrator: rpc on NATS (`libs.common.bus.RpcClient`)."""

import contextlib
import logging
from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.errors import Error as NatsError

from deploy.platform.errors import CommandError
from deploy.platform.nats_grants import ADMIN
from deploy.platform.state import Addresses
from libs.common.bus import Bus, NobodyAnswers, RpcClient, SecureClient
from libs.common.jobs import retry
from libs.common.tls import trusting_for

_CONNECT_SECONDS = 2
_NO_NEWS = "returning true from eof_received() has no effect when using ssl"
"""What asyncio says at the end of every TLS connection of nats-py, which knows nothing of it."""
logging.getLogger("asyncio").addFilter(lambda record: record.msg != _NO_NEWS)


@contextlib.asynccontextmanager
async def connect(addresses: Addresses, password: str) -> AsyncIterator[RpcClient]:
    """Connect as administrator. Raises `CommandError` when the platform is not running."""
    try:
        client = await log_in(addresses, password)
    except (NatsError, OSError, TimeoutError) as error:
        raise CommandError(
            f"no platform answers at {addresses.nats_url}: is `thingway up` running?"
        ) from error
    try:
        yield RpcClient(Bus(client, client.jetstream()))
    except NobodyAnswers as error:
        raise CommandError(f"the platform is not ready: {error}") from error
    finally:
        await client.close()


async def wait_ready(addresses: Addresses, password: str) -> None:
    """Return when the server takes logins and JetStream answers; the caller bounds the time."""

    async def look() -> None:
        client = await log_in(addresses, password)
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    await retry(look, NatsError, OSError)


async def log_in(addresses: Addresses, password: str, user: str = ADMIN) -> Client:
    """Connect or raise what nats-py raises, at once: by itself it tries 60 times in two minutes."""
    client = SecureClient()
    await client.connect(
        addresses.nats_url.split(","),
        tls=trusting_for(addresses.nats_url, addresses.ca_file),
        user=user,
        password=password,
        name="thingway",
        inbox_prefix=f"_INBOX.{user}".encode(),
        allow_reconnect=False,
        max_reconnect_attempts=1,  # for ever below that
        reconnect_time_wait=0,
        connect_timeout=_CONNECT_SECONDS,
        error_cb=_ignore,
    )
    return client


async def _ignore(_: Exception) -> None:
    """Keep the client from logging what the caller is told by an exception."""
