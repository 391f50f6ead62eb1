"""Gaps in frame counters, as users and applications see them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from libs.common.clock import now_ms
from services.device.lorawan import gaps as service
from tests.integration.device.values.lora import Server, serving
from tests.integration.device.values.world import World

MINUTE = 60_000


@pytest_asyncio.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with serving(world) as found:
        yield found


async def heard(world: World, server: Server, eui: str, *counters: int) -> tuple[int, int]:
    """Add a sensor with frames of these counters, a minute apart; return id and first time."""
    device, begin = await server.add(eui), now_ms() - 60 * MINUTE
    for at, counter in enumerate(counters):
        await server.hear(eui, b"\x01\x07", counter=counter, ts=begin + at * MINUTE)
    frames = world.database["frames"]

    async def stored() -> bool:
        return bool(await frames.count_documents({}) >= len(counters)) and (
            len(await page(world, device, "frames")) == len(counters)
        )

    await world.until(stored)
    return device, begin


async def page(world: World, device: int, what: str = "gaps") -> list[dict]:
    answer = await world.admin().done("POST", f"/device/{device}/{what}/search", {"page_size": 100})
    found: list[dict] = answer["content"]
    return found


async def test_gaps_are_listed_the_newest_first(world: World, server: Server) -> None:
    """A gap has the times around it and the number of missing counters."""
    device, begin = await heard(world, server, "G-1", 1, 2, 5, 6, 8)
    newer = {"start": begin + 3 * MINUTE, "end": begin + 4 * MINUTE, "counter": 7, "missing": 1}
    older = {"start": begin + MINUTE, "end": begin + 2 * MINUTE, "counter": 3, "missing": 2}
    assert await page(world, device) == [newer | {"state": "OPEN"}, older | {"state": "OPEN"}]
    path = f"/device/{device}/gaps/search"
    first = await world.admin().done("POST", path, {"page_size": 1})
    second = await world.admin().done("POST", path, {"page_size": 1, "next_key": first["next_key"]})
    assert [one["counter"] for one in (*first["content"], *second["content"])] == [7, 3]
    within = {"start_timestamp": begin + 90_000, "end_timestamp": begin + 100_000}
    assert [
        entry["counter"] for entry in (await world.admin().done("POST", path, within))["content"]
    ] == [3]
    wrong = {"start_timestamp": 2, "end_timestamp": 1}
    assert (await world.admin().ask("POST", path, wrong)).status_code == 400


async def test_a_late_frame_closes_a_gap(world: World, server: Server) -> None:
    """A late frame closes a gap by its own or arrival time; a repetition changes nothing."""
    device, begin = await heard(world, server, "G-2", 1, 5, 6)
    await server.hear("G-2", b"\x01\x07", counter=3, ts=begin + 30_000)
    await server.hear("G-2", b"\x01\x07", counter=3, ts=begin + 30_500)
    await server.hear("G-2", b"\x01\x07", counter=2, ts=begin + 20_000)
    await world.until(lambda: _missing(world, device, [4]))
    await server.hear("G-2", b"\x01\x07", counter=4)
    await world.until(lambda: _missing(world, device, []))


async def _missing(world: World, device: int, counters: list[int]) -> bool:
    return [one["counter"] for one in await page(world, device)] == counters


async def test_pages_cover_all_frames(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gap is missing where a page of frames ends."""
    device, _ = await heard(world, server, "G-3", 1, 3, 4, 5, 7, 8, 11)
    monkeypatch.setattr(service, "FRAMES_PER_PAGE_READ", 3)
    found, key = list[int](), None
    for _ in range(10):
        body = {"next_key": key} if key else {}
        answer = await world.admin().done("POST", f"/device/{device}/gaps/search", body)
        found += [entry["counter"] for entry in answer["content"]]
        key = answer.get("next_key")
        if key is None:
            break
    assert found == [9, 6, 2]


async def test_strangers_see_no_gaps(world: World, server: Server) -> None:
    """Other tenants and users without a grant see no gaps."""
    device, _ = await heard(world, server, "G-4", 1, 3)
    path = f"/device/{device}/gaps/search"
    assert (await world.admin("other").ask("POST", path, {})).status_code == 404
