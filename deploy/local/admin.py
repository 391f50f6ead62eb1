"""Talk to the services as the administrator: request and reply on NATS.

Subjects are `rpc.{service}.{operation}`; a refusal comes as the headers of a NATS micro
service error.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER

from deploy.local.errors import CommandError
from deploy.local.nats import ADMIN

_CONNECT_SECONDS = 2
_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.05


class Refused(CommandError):
    """A service refused; `code` is its stable error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message or code)
        self.code = code


class Admin:
    """The operations of the services on behalf of the administrator."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, subject: str, body: dict[str, Any] | None = None) -> Any:
        """Send `body` to `subject` and return the decoded answer.

        Raises `Refused` with the service's reason, `CommandError` when nobody answers.
        """
        try:
            answer = await self._client.request(
                subject, msgspec.json.encode(body or {}), timeout=_ANSWER_SECONDS
            )
        except NoRespondersError as error:
            raise CommandError(f"the platform is not ready: nobody answers {subject}") from error
        except NatsError as error:
            raise CommandError(f"{subject} was not answered: {error}") from error
        headers = answer.headers or {}
        if ERROR_HEADER in headers or ERROR_CODE_HEADER in headers:
            raise Refused(headers.get(ERROR_CODE_HEADER, ""), headers.get(ERROR_HEADER, ""))
        return msgspec.json.decode(answer.data) if answer.data else None


@contextlib.asynccontextmanager
async def connect(url: str, password: str) -> AsyncIterator[Admin]:
    """Connect as administrator. Raises `CommandError` when the platform is not running."""
    try:
        client = await log_in(url, password)
    except (NatsError, OSError, TimeoutError) as error:
        raise CommandError(f"no platform answers at {url}: is `thingway up` running?") from error
    try:
        yield Admin(client)
    finally:
        await client.close()


async def wait_ready(url: str, password: str) -> None:
    """Return when the server takes logins and JetStream answers; the caller bounds the time."""
    while True:
        try:
            client = await log_in(url, password)
        except (NatsError, OSError, TimeoutError):
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        try:
            await client.jetstream().account_info()
        except NatsError:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return
        finally:
            await client.close()


async def log_in(url: str, password: str, user: str = ADMIN) -> Client:
    """Connect or raise what nats-py raises, at once: by itself it tries 60 times in two minutes."""
    return await nats.connect(
        url,
        user=user,
        password=password,
        name="thingway",
        inbox_prefix=f"_INBOX.{user}".encode(),
        allow_reconnect=False,
        max_reconnect_attempts=1,  # for ever below that
        reconnect_time_wait=_PAUSE_SECONDS,
        connect_timeout=_CONNECT_SECONDS,
        error_cb=_ignore,
    )


async def _ignore(_: Exception) -> None:
    """Keep the client from logging what the caller is told by an exception."""
