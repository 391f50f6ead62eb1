"""The relay of `gateway-bus` in the tests' own process."""

import contextlib
from collections.abc import AsyncIterator

from deploy.platform.nats_grants import RELAY_USER
from libs.common.bus import Bus
from libs.common.jobs import run_in_background
from services.gateway.relay.rules import MessageSender
from services.gateway.relay.service import MessageRelay, RelayQuota


class Unlimited(RelayQuota):
    """Lets everything pass."""

    def __init__(self) -> None:
        pass

    def count_drop_if_blocked(self, subject: bytes) -> bool:
        return False

    def get_tenant(self, sender: MessageSender) -> str:
        return "default"

    def count_or_reject_message(self, pattern: str, sender: MessageSender, size: int) -> None:
        pass


@contextlib.asynccontextmanager
async def relaying(url: str, password: str) -> AsyncIterator[MessageRelay]:
    """Pass on what is said outside, as long as the block lasts."""
    bus = await Bus.connect(url, user=RELAY_USER, password=password, name="relay")
    relay = MessageRelay(bus, Unlimited())
    async with run_in_background(relay.relay_forever()):
        await relay.start()
        for _ in range(2):  # nats-py lets a first PING overtake the subscriptions
            await bus.client.flush()
        try:
            yield relay
        finally:
            await relay.stop()
            await bus.drain()
