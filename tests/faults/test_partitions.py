"""Partitions become more and fewer under load: what was acknowledged is stored once."""

import pytest

from tests.e2e.platform import MODEL, PRODUCT, Platform
from tests.faults.load import Load, settled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("partitions")]


async def test_partitions_become_more_and_fewer_under_load(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one to three, two and one: messages left in a removed stream count too."""
    platform = Platform(tmp_path / "data")
    platform.start()
    try:
        application = platform.application()
        await application.data("PUT", f"/products/{MODEL}", PRODUCT)
        device = await application.add_device()
        await device.http("POST", "report", {"properties": {"counter": 0}}, wait="stored")
        before = await settled(platform)
        load = Load(platform, application)
        async with load.running(2):
            for number in (3, 2, 1):
                platform.stop()
                monkeypatch.setenv("THINGWAY_UPLINK_PARTITIONS", str(number))
                monkeypatch.setenv("THINGWAY_EVENTS_PARTITIONS", str(number))
                platform.start()
                await load.goes_on(60)
        await load.check(before)
        await load.close()
    finally:
        platform.stop()
