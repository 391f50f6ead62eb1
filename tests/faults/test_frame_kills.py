"""`kill -9` of ingest while frames of a network server come again and again: each is one report."""

import asyncio
import random
import secrets
from typing import Any

import aiohttp
import msgspec
import pytest
from pymongo import AsyncMongoClient

from deploy.platform.services import database_users
from services.device.telemetry.partitions import COLLECTION_PREFIX, history_key
from tests.e2e.callers import Application, Console
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.faults.load import settled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("platform")]

MODEL, EUI = "LORA-KILLED", "24E124136B502299"
OWN = "webhook.integration"
FRAMES, TIMES, BAD = 60, 3, 10
"""Frames, how often each is told, and each which of them the codec refuses."""
SCRIPT = f"""
function Decode(port, bytes) {{
  if (bytes[0] % {BAD} == 0) throw new Error('odd');
  return {{count: bytes[0]}};
}}
"""
TSL = {
    "version": "v1.0",
    "properties": [
        {"id": "count", "name": "n", "accessMode": "R", "dataSpec": {"dataType": "INT"}}
    ],
    "events": [],
    "services": [],
}


@pytest.fixture
async def hook(application: Application, console: Console) -> str:
    """Return the path of a webhook that has a sensor."""
    product = {"name": MODEL, "snPrefixes": [], "tsl": TSL}
    await application.data("PUT", f"/products/{MODEL}", product)
    await application.data("PUT", f"/products/{MODEL}/codec", {"script": SCRIPT})
    token = secrets.token_urlsafe(32)
    fields = ("device", "data", "port", "counter")
    settings = {"webhook_token": token, "encoding": "hex"} | {
        field: f"/{field}" for field in fields
    }
    exchange = {f"{OWN}.{name}": value for name, value in settings.items()}
    await console.data("POST", "/entity/property/update", {"exchange": exchange})
    params = {f"{OWN}.add_device.dev_eui": EUI, f"{OWN}.add_device.model": MODEL}
    body = {"name": EUI, "integration": "webhook", "param_entities": params}
    await console.data("POST", "/device", body)
    return f"/integration/hooks/{token}"


async def test_repeated_frames_are_one_report_each_while_ingest_dies(
    platform: Platform, console: Console, hook: str
):
    """Three copies each, out of order; an accepted frame is stored or rejected once."""
    before = await settled(platform)
    told = [number for number in range(FRAMES) for _ in range(TIMES)]
    random.Random(7).shuffle(told)

    async def tell(session: aiohttp.ClientSession, number: int) -> None:
        frame = {"device": EUI, "data": f"{number:02x}", "port": 85, "counter": number}

        async def taken() -> bool:
            async with session.post(hook, data=msgspec.json.encode(frame)) as answer:
                return answer.status == 200

        await until(taken, 60)

    async with platform.session() as session:
        third = len(told) // 3
        for first in range(0, len(told), third):
            pid = await platform.kill("device-ingest") if first else None
            await asyncio.gather(*(tell(session, one) for one in told[first : first + third]))
            if pid is not None:
                await platform.restarted("device-ingest", pid)
    after = await settled(platform)
    wanted = {"page_size": 100, "page_number": 1, "name": EUI}
    (device,) = (await console.data("POST", "/device/search", wanted))["content"]
    frames = await pages(console, f"/device/{device['id']}/frames/search")
    assert sorted(one["counter"] for one in frames) == list(range(FRAMES))
    shown = {one["counter"]: one.get("values") for one in frames}
    assert shown == {n: {"count": n} if n % BAD else None for n in range(FRAMES)}
    counts = await history(platform, int(device["id"]))
    assert sorted(counts) == [n for n in range(FRAMES) if n % BAD]
    grown = {name: after[name] - before[name] for name in ("accepted", "stored", "rejected")}
    assert grown["accepted"] == grown["stored"] + grown["rejected"]
    assert grown["rejected"] == FRAMES // BAD


async def pages(console: Console, path: str) -> list[dict[str, Any]]:
    """Return all results, from all pages."""
    found: list[dict[str, Any]] = []
    key: str | None = None
    while True:
        more = {"next_key": key} if key else {}
        page = await console.data("POST", path, {"page_size": 50, **more})
        found += page["content"]
        key = page.get("next_key")
        if not key:
            return found


async def history(platform: Platform, device: int) -> list[int]:
    """Return all counts in the history of a device, with copies."""
    user = next(one for one in database_users(platform.state) if one.name == "device")
    bounds = {"$gte": history_key(device, 0, 0), "$lt": history_key(device + 1, 0, 0)}
    async with AsyncMongoClient[Any](
        user.url(*platform.state.member_addresses("mongod"))
    ) as client:
        rows: list[dict[str, Any]] = []
        database = client.get_default_database()
        for name in await database.list_collection_names():
            if name.startswith(COLLECTION_PREFIX):
                rows += await database[name].find({"_id": bounds}).to_list(None)
    return [row["p"]["count"] for row in rows]
