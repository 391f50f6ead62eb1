"""What the simulator hears of its devices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.contracts.events import DeviceChanged
from libs.common.things import device_key
from services.management.builtin.simulator.integration import Simulator
from services.management.builtin.simulator.manifest import MANIFEST

_OURS = device_key(MANIFEST.id, "")


@asynccontextmanager
async def told_of_changes(bus: Bus, simulator: Simulator) -> AsyncIterator[None]:
    """Tell the simulator of added, changed and deleted devices; a look finds what is missed."""

    async def hear(message: Msg) -> None:
        event = msgspec.json.decode(message.data, type=DeviceChanged)
        if not event.device.thing_key.startswith(_OURS):
            return
        if event.change == "deleted":
            simulator.forget(event.device.device_id)
        else:
            simulator.changed(event.device.device_id)

    subscriptions = [
        await bus.client.subscribe(f"event.*.device.*.{change}", cb=hear)
        for change in ("added", "updated", "deleted")
    ]
    try:
        yield
    finally:
        if bus.connected:
            for subscription in subscriptions:
                await subscription.unsubscribe()
