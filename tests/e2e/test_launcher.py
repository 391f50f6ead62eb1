"""`thingway up` as a person uses it: stop, and start again."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.platform import MODEL, PRODUCT, Platform, alive
from tests.e2e.waiting import until
from tests.node import node

pytestmark = pytest.mark.xdist_group("platform")


async def _first_life(platform: Platform) -> tuple[dict[str, str], int, str, str]:
    application = platform.application()
    try:
        await application.data("PUT", f"/products/{MODEL}", PRODUCT)
        device = await application.add_device()
        async with device.mqtt() as mqtt:
            await mqtt.report({"counter": 1})
        await device.stored({"counter": 1})
    finally:
        await application.close()
    return device.sn, device.id, device.key


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


@contextlib.asynccontextmanager
async def _page_open(platform: Platform, marks: Path, device_id: int) -> AsyncIterator[None]:
    """Open the page of a device's counter: 1 before the restart, 2 at the end.

    In `marks` it writes `opened`, and `stale` when the page shows that it is not live.
    """
    console = platform.console()
    try:
        entities = (await console.data("GET", f"/device/{device_id}"))["entities"]
    finally:
        await console.close()
    given = {
        "baseUrl": platform.base_url,
        "email": platform.ready.user.email,
        "password": platform.ready.user.password,
        "entity": next(entity["id"] for entity in entities if entity["key"].endswith(".counter")),
        "opened": str(marks / "opened"),
        "stale": str(marks / "stale"),
    }
    journey = asyncio.to_thread(node, "console/restart.mjs", json.dumps(given))
    watching = asyncio.ensure_future(journey)
    await until(lambda: _exists(marks / "opened"), 90)
    yield
    assert json.loads(await watching) == {"before": "1", "after": "2", "problems": []}


async def test_a_stop_leaves_nothing_and_a_second_start_keeps_all(
    platform: Platform, tmp_path: Path
):
    """Ctrl-C ends every process; the same directory brings data and credentials back.

    A page of the console that is open all the time says when it is stale, and recovers.
    """
    first = platform.ready
    sn, device_id, key = await _first_life(platform)
    async with _page_open(platform, tmp_path, device_id):
        assert platform.stop(signal.SIGINT) == 0
        assert alive(list(first.pids.values())) == []
        assert not (platform.directory / "ready.json").exists()
        await until(lambda: _exists(tmp_path / "stale"))
        platform.start()
        second = platform.ready
        assert (second.application, second.device) == (first.application, first.device)
        assert (second.user, second.console_client) == (first.user, first.console_client)
        application = platform.application()
        try:
            [found] = (
                await application.data(
                    "POST", "/devices/search", {"pageSize": 5, "pageNumber": 1, "sn": sn}
                )
            )["content"]
            assert found["deviceId"] == device_id
            device = type(await application.add_device())(application, device_id, sn, key)
            assert [one["properties"] for one in await device.history()] == [{"counter": 1}]
            async with device.mqtt() as mqtt:
                await mqtt.report({"counter": 2})
            await device.stored({"counter": 2})
        finally:
            await application.close()
