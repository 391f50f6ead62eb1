"""State and event agree, also when the bus does not accept messages."""

from collections.abc import Iterable

import pytest

from libs.common.bus import OutgoingMessage
from libs.common.errors import Unavailable
from tests.integration.device.registry.devices.platform import Platform


async def test_the_event_waits_while_the_bus_is_away(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is added, and its event is kept to be published later."""

    async def refuse(_: Iterable[OutgoingMessage]) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(platform.bus, "publish", refuse)
    device = await platform.mine.add("SN1")
    waiting = await platform.database["outbox"].find({}).to_list(None)
    subjects = [entry["subject"] for one in waiting for entry in one["entries"]]
    assert subjects == [f"event.default.device.{device}.added"]


async def test_a_rejected_change_leaves_no_event(platform: Platform) -> None:
    """The event is neither published nor stored."""
    await platform.mine.add("SN1")
    await platform.foreign.refused(409, "POST", "/devices", {"snDevEUI": "SN1", "name": "x"})
    await platform.foreign.refused(404, "DELETE", "/devices/1")
    assert len(platform.bus.heard) == 1
    assert await platform.database["outbox"].count_documents({}) == 0
