"""Wakes the devices that wait for commands over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from libs.common.bus import Bus
from libs.common.bus.subjects import down_command


class WaitingDevices:
    """The devices whose polls this process holds; one subscription hears the commands of all.

    A poll costs an entry here and nothing on the bus.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to hear commands."""
        subject = down_command("*")
        self._subscription = await self._bus.client.subscribe(subject, cb=self._heard)

    async def stop(self) -> None:
        """Hear no more."""
        if self._subscription is not None and self._bus.connected:
            await self._subscription.unsubscribe()

    @contextmanager
    def waiting(self, sn: str) -> Iterator[asyncio.Event]:
        """An event that is set when a command goes to the device, while the block lasts."""
        arrived = asyncio.Event()
        subject = down_command(sn)
        events = self._waiting.setdefault(subject, set())
        events.add(arrived)
        try:
            yield arrived
        finally:
            events.remove(arrived)
            if not events:
                del self._waiting[subject]

    async def _heard(self, message: Msg) -> None:
        for arrived in self._waiting.get(message.subject, ()):
            arrived.set()
