"""Events of the platform over NATS."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

EVENTS_STREAM = "EVENTS"
MAX_EVENTS_PER_REQUEST, REQUEST_SECONDS = 100, 30.0
"""Maximum events of a request, and how long it waits for them, in seconds."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, for example `device.1000000.reported`, with its `body`."""

    subject: str
    """Without `event.{tenant}.`."""
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """Return the subject without the id: `device.reported`."""
        first, *_, last = self.subject.split(".")
        return f"{first}.{last}"


class _TlsRequiredClient(Client):
    """A client that rejects a `tls://` server without TLS; nats-py would connect unencrypted."""

    async def _process_info(self, info: dict[str, Any], *args: Any, **options: Any) -> None:
        server = self._current_server
        if server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise NatsError("the server offers no TLS")
        await super()._process_info(info, *args, **options)


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """The NATS server, and the login of the application."""

    nats_url: str
    client_id: str
    client_secret: str
    tenant: str

    async def connect(self) -> Client:
        """Return a connection, whose inbox prefix is that of the application."""
        client = _TlsRequiredClient()
        await client.connect(
            self.nats_url,
            user=self.client_id,
            password=self.client_secret,
            inbox_prefix=f"_INBOX.app.{self.client_id}".encode(),
            max_reconnect_attempts=-1,
        )
        return client

    def parse_event(self, subject: str, data: bytes) -> Event:
        """Return the event in a NATS message with this subject and payload."""
        return Event(subject.removeprefix(f"event.{self.tenant}."), json.loads(data))


async def listen(login: NatsLogin, pattern: str, *, durable: bool) -> AsyncGenerator[Event, None]:
    """Yield events whose subject, without `event.{tenant}.`, matches `pattern`."""
    client = await login.connect()
    subject = f"event.{login.tenant}.{pattern}"
    try:
        source = (
            _yield_durable_events(client, login, subject)
            if durable
            else _yield_live_events(client, login, subject)
        )
        async for event in source:
            yield event
    finally:
        await client.close()


async def _yield_live_events(
    client: Client, login: NatsLogin, subject: str
) -> AsyncGenerator[Event, None]:
    subscription = await client.subscribe(subject)
    async for message in subscription.messages:
        yield login.parse_event(message.subject, message.data)


async def _yield_durable_events(
    client: Client, login: NatsLogin, subject: str
) -> AsyncGenerator[Event, None]:
    """Yield unconfirmed events of the application's durable consumer, then new events.

    Requesting the next event confirms the previous one. An unconfirmed event is delivered again.
    """
    stream = client.jetstream()
    try:
        await stream.consumer_info(EVENTS_STREAM, login.client_id)
    except NotFoundError:
        config = ConsumerConfig(
            name=login.client_id,
            durable_name=login.client_id,
            filter_subject=f"event.{login.tenant}.>",
            ack_policy=AckPolicy.EXPLICIT,
        )
        await stream.add_consumer(EVENTS_STREAM, config)
    reader = await stream.pull_subscribe_bind(login.client_id, EVENTS_STREAM)
    while True:
        with contextlib.suppress(NothingCame):
            for message in await reader.fetch(MAX_EVENTS_PER_REQUEST, timeout=REQUEST_SECONDS):
                if _matches_pattern(message.subject, subject):
                    yield login.parse_event(message.subject, message.data)
                await message.ack()


def _matches_pattern(subject: str, pattern: str) -> bool:
    """Return whether a NATS pattern matches a subject."""
    tokens, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        tokens, wanted = tokens[: len(wanted) - 1], wanted[:-1]
    return len(tokens) == len(wanted) and all(
        part in ("*", token) for token, part in zip(tokens, wanted, strict=True)
    )


def listen_blocking(
    login: NatsLogin, pattern: str, *, durable: bool
) -> Generator[Event, None, None]:
    """Yield the events of `listen` in code without asyncio."""
    with asyncio.Runner() as runner:
        events = listen(login, pattern, durable=durable)
        following: Callable[[], Any] = events.__anext__
        try:
            while True:
                yield runner.run(_wait_for_event(following))
        finally:
            runner.run(events.aclose())


async def _wait_for_event(following: Callable[[], Any]) -> Event:
    found: Event = await following()
    return found
