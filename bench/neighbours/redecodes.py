"""Re-decode jobs: frames of many products of one tenant are decoded again."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec

from bench.frames import SCRIPT, payload, prepare
from bench.neighbours.harness import Arena, Contest, Count
from bench.tenants import Tenant, data
from libs.common.clock import now_ms
from libs.common.contracts.frames import Frame
from services.device.lorawan.frame_store import frame_identity
from services.device.telemetry.partitions import history_key

PRODUCTS, DEVICES, FRAMES = 12, 20, 1000
"""Products of the loud tenant, devices of each and frames of each of these."""
PROBED, FEW = 40, 10
"""Products of the quiet tenant, and frames of its one device of each."""
POLL = 0.05
FIRST_ID = 10**9


class Redecodes(Contest):
    """Dry runs of re-decode jobs, from start to end."""

    name = "9. 12 products of 20,000 frames are decoded again and again; one product of 10 frames"

    async def prepare(self, arena: Arena) -> None:
        """Write products with codecs, devices and frames."""
        self.base, self.loud = arena.base, _headers(arena.loud)
        database, device = arena.platform.database(), FIRST_ID
        for tenant, products, devices, frames in (
            (arena.quiet, PROBED, 1, FEW),
            (arena.loud, PRODUCTS, DEVICES, FRAMES),
        ):
            for number in range(products):
                prepare(database, tenant.name, device, devices, SCRIPT, f"P{number}")
                for device_id in range(device, device + devices):
                    await asyncio.to_thread(database.frames.insert_many, _frames(device_id, frames))
                device += devices

    async def probe(self, arena: Arena, number: int) -> None:
        """Run a re-decode job, and wait until it is done."""
        headers = _headers(arena.quiet)
        job = await _begin(arena.http, headers, number % PROBED)
        while job["state"] == "RUNNING":
            await asyncio.sleep(POLL)
            job = await _find(arena.http, headers, number % PROBED)
        if (job["state"], job.get("read")) != ("DONE", FEW):
            raise RuntimeError(str(job))

    async def attack(self, count: Count) -> None:
        """Restart the re-decode job of each product as soon as it ends; count frames."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            for number in range(PRODUCTS):
                tasks.create_task(self._again(http, number, count))

    async def _again(self, http: aiohttp.ClientSession, number: int, count: Count) -> None:
        while True:
            job, read = await _begin(http, self.loud, number), 0
            while job["state"] == "RUNNING":
                await asyncio.sleep(1)
                job = await _find(http, self.loud, number)
                count(job.get("read", 0) - read)
                read = job.get("read", 0)

    async def pending(self, arena: Arena) -> int:
        """Return how many re-decode jobs are running."""
        redecodes = arena.platform.database().redecodes
        return await asyncio.to_thread(redecodes.count_documents, {"state": "RUNNING"})


def _headers(tenant: Tenant) -> dict[str, str]:
    return {"Authorization": f"Bearer {tenant.token}"}


async def _begin(http: aiohttp.ClientSession, headers: dict[str, str], number: int) -> Any:
    path = f"/product/P{number}/codec/redecode"
    async with http.post(path, json={"dry": True}, headers=headers) as answer:
        return await data(answer)


async def _find(http: aiohttp.ClientSession, headers: dict[str, str], number: int) -> Any:
    async with http.get(f"/product/P{number}/codec/redecode", headers=headers) as answer:
        return await data(answer)


def _frames(device: int, number: int) -> Iterator[dict[str, Any]]:
    until, ts = datetime.now(UTC) + timedelta(days=1), now_ms() - 10_000_000
    for at in range(number):
        frame = Frame(port=85, data=payload(at), counter=at, session="01f3a2b4", ts=ts + at)
        name = device.to_bytes(8) + b"\0" * 8 + at.to_bytes(4)
        yield {
            "_id": history_key(device, ts + at, at),
            "i": frame_identity(name, 0),
            "at": until,
            "c": "other",
            "f": msgspec.json.encode(frame),
        }
