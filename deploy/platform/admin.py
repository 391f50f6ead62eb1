"""Clients of NATS: RPC calls as administrator, and JetStream's API."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from deploy.platform.errors import CommandError
from deploy.platform.nats_grants import ADMIN_USER
from deploy.platform.state import Addresses
from libs.common.bus import Bus, NoResponders, RpcClient, SecureClient
from libs.common.jobs import retry
from libs.common.tls import client_context_for

_CONNECT_SECONDS = 2
_API_SECONDS = 10.0
_STREAM_NOT_FOUND = 10059


@contextlib.asynccontextmanager
async def connect_rpc(addresses: Addresses, password: str) -> AsyncIterator[RpcClient]:
    """Yield the administrator's RPC client; raise `CommandError` without a platform."""
    try:
        client = await log_in_once(addresses, password)
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
        client = await log_in_once(addresses, password)
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()

    await retry(attempt, NatsError, OSError)


async def log_in_once(addresses: Addresses, password: str, user: str = ADMIN_USER) -> Client:
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
        error_cb=_ignore_error,
    )
    return client


class JetStreamError(msgspec.Struct):
    """An error of JetStream's API."""

    err_code: int = 0
    description: str = ""


class JetStreamReply(msgspec.Struct):
    """A reply of JetStream's API."""

    error: JetStreamError | None = None
    config: dict[str, Any] = {}
    state: dict[str, Any] = {}
    deliver_subject: str = ""

    @property
    def is_stream_missing(self) -> bool:
        """Return whether the stream does not exist."""
        return self.error is not None and self.error.err_code == _STREAM_NOT_FOUND


async def call_jetstream(client: Client, operation: str, body: Any = None) -> JetStreamReply:
    """Call an operation of JetStream's API, e.g. `STREAM.INFO.EVENTS`."""
    content = b"" if body is None else msgspec.json.encode(body)
    reply = await client.request(f"$JS.API.{operation}", content, timeout=_API_SECONDS)
    return msgspec.json.decode(reply.data, type=JetStreamReply)


async def _ignore_error(_: Exception) -> None:
    """Do nothing, so that nats-py does not log; the caller gets an exception."""
