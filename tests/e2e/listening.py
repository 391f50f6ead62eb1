"""Listener for the platform's messages on NATS."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from libs.common.bus import SecureClient
from tests.e2e.callers import Application
from tests.e2e.devices import Json
from tests.e2e.platform import Platform
from tests.e2e.waiting import PATIENCE


@dataclass(frozen=True)
class Event:
    """A message received from the bus."""

    subject: str
    body: Json


class Listener:
    """Records the messages on NATS from now on."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._more = asyncio.Event()

    async def record(self, message: Msg) -> None:
        """Record a message."""
        self.heard.append(Event(message.subject, json.loads(message.data)))
        self._more.set()

    async def wait(self, subject: str, matches: Callable[[Json], bool] = lambda _: True) -> Json:
        """Return the first matching message on `subject`, received already or later."""
        seen = 0
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    self._more.clear()
                    for event in self.heard[seen:]:
                        if event.subject == subject and matches(event.body):
                            return event.body
                    seen = len(self.heard)
                    await self._more.wait()
        except TimeoutError:
            about = [event for event in self.heard if event.subject == subject]
            pytest.fail(f"no matching message on {subject}; received: {about}")


async def connect(platform: Platform, client_id: str, client_secret: str) -> NatsClient:
    """Connect as an application does."""
    address = urlsplit(platform.ready.nats_url.split(",")[0])
    client = SecureClient()
    await client.connect(
        f"{address.scheme}://{address.hostname}:{address.port}",
        tls=platform.trust,
        user=client_id,
        password=client_secret,
        inbox_prefix=f"_INBOX.app.{client_id}".encode(),
    )
    return client


@contextlib.asynccontextmanager
async def listening(platform: Platform, application: Application) -> AsyncIterator[Listener]:
    """Listen to the events of the tenant, as an application."""
    client = await connect(platform, application.client_id, application.client_secret)
    listener = Listener()
    try:
        await client.subscribe("event.default.>", cb=listener.record)
        await client.flush()
        yield listener
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def hearing_dead(platform: Platform) -> AsyncIterator[Listener]:
    """Listen to the messages in `DEAD`."""
    listener = Listener()
    async with platform.admin() as client:
        await client.subscribe("dead.>", cb=listener.record)
        await client.flush()
        yield listener
