"""RPC clients that log in to NATS as the administrator."""

import contextlib
import logging
from collections.abc import AsyncIterator

from nats.aio.client import Client
from nats.errors import Error as NatsError

from deploy.platform.errors import CommandError
from deploy.platform.nats_grants import ADMIN
from deploy.platform.state import Addresses
from libs.common.bus import Bus, NoResponders, RpcClient, SecureClient
from libs.common.jobs import retry
from libs.common.tls import client_context_for

_CONNECT_SECONDS = 2
_TLS_WARNING = "returning true from eof_received() has no effect when using ssl"
"""Harmless warning of asyncio at the end of every TLS connection of nats-py."""
logging.getLogger("asyncio").addFilter(lambda record: record.msg != _TLS_WARNING)


@contextlib.asynccontextmanager
async def connect(addresses: Addresses, password: str) -> AsyncIterator[RpcClient]:
    """Connect as administrator; raise `CommandError` if the platform is not running."""
    try:
        client = await log_in(addresses, password)
    except (NatsError, OSError, TimeoutError) as error:
        raise CommandError(
            f"no platform responds at {addresses.nats_url}: is `thingway up` running?"
        ) from error
    try:
        yield RpcClient(Bus(client, client.jetstream()))
    except NoResponders as error:
        raise CommandError(f"the platform is not ready: {error}") from error
    finally:
        await client.close()


async def wait_ready(addresses: Addresses, password: str) -> None:
    """Wait until the server accepts logins and JetStream responds.

    The caller limits the time.
    """

    async def attempt() -> None:
        client = await log_in(addresses, password)
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    await retry(attempt, NatsError, OSError)


async def log_in(addresses: Addresses, password: str, user: str = ADMIN) -> Client:
    """Connect once; raise the error of nats-py, which would retry for two minutes."""
    client = SecureClient()
    await client.connect(
        addresses.nats_url.split(","),
        tls=client_context_for(addresses.nats_url, addresses.ca_file),
        user=user,
        password=password,
        name="thingway",
        inbox_prefix=f"_INBOX.{user}".encode(),
        allow_reconnect=False,
        max_reconnect_attempts=1,  # 0 would retry forever
        reconnect_time_wait=0,
        connect_timeout=_CONNECT_SECONDS,
        error_cb=_suppress_log,
    )
    return client


async def _suppress_log(_: Exception) -> None:
    """Suppress logging; the caller gets an exception."""
