"""Tells a waiting HTTP request (`?wait=stored`) what became of its message.

The edge sends a reply subject along in a header; ingest answers on it when the batch is
stored. Only subjects of the edge's making are answered, because a device may set headers.
"""

import asyncio
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.errors import UpstreamTimeout
from services.device.reports.batch import Batch
from services.device.reports.uplink import Uplink

HEADER = "Thingway-Notify"
PREFIX = "ingest.stored."
_OURS = re.compile(rf"{re.escape(PREFIX)}[0-9a-f]{{32}}").fullmatch


class Outcome(msgspec.Struct):
    """Why a message was refused; None when it is stored."""

    refused: str | None = None


async def notify(bus: Bus, uplinks: Iterable[Uplink], batch: Batch) -> None:
    """Answer whoever waits for one of `uplinks`."""
    waiting = [
        (uplink, uplink.message.headers[HEADER])
        for uplink in uplinks
        if uplink.message.headers and HEADER in uplink.message.headers
    ]
    if not waiting:
        return
    reasons = {refused.uplink.sequence: refused.reason for refused in batch.refused}
    for uplink, subject in waiting:
        if _OURS(subject):
            outcome = Outcome(reasons.get(uplink.sequence))
            await bus.publish_core(subject, msgspec.json.encode(outcome))


class StoredWaiter:
    """Waits for `expected` answers; use as `async with`, publish inside, then `wait`."""

    def __init__(self, bus: Bus, expected: int) -> None:
        self._bus = bus
        self._expected = expected
        self._outcomes: list[Outcome] = []
        self._complete = asyncio.Event()
        self.subject = f"{PREFIX}{uuid4().hex}"

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        self._subscription = await self._bus.client.subscribe(self.subject, cb=self._hear)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening."""
        if not self._bus.client.is_closed:
            await self._subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        self._outcomes.append(msgspec.json.decode(message.data, type=Outcome))
        if len(self._outcomes) >= self._expected:
            self._complete.set()

    async def wait(self, seconds: float) -> list[Outcome]:
        """Return every outcome; raise `UpstreamTimeout` when they take longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._complete.wait()
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"accepted, and not known to be stored after {seconds:g} s"
            ) from error
        return self._outcomes
