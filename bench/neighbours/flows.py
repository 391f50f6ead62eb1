"""Many flows listen to one value of a device that reports often."""

import asyncio
import json
import time
from collections import deque
from typing import ClassVar

import aiohttp
from nats.aio.msg import Msg

from bench.neighbours.harness import Arena, Contest, Count, listen
from bench.tenants import Tenant, data

FLOWS = 150
RATE = 40
"""Reports per second."""


class Listeners(Contest):
    """Reports of a device, until the flow that listens has run."""

    name = "7. 150 flows listen to one key, 40 reports/s; from a report to the end of a flow's run"
    devices: ClassVar = (1, 1)

    async def prepare(self, arena: Arena) -> None:
        """Create the listening flows."""
        self.base = arena.base
        self.logins = [
            (login.name, login.key)
            for tenant in (arena.quiet, arena.loud)
            for _, login in tenant.devices
        ]
        await _add_flows(arena, arena.quiet, 1)
        await _add_flows(arena, arena.loud, FLOWS)
        await asyncio.sleep(1)  # wait until the service polls for changes

    async def begin(self, arena: Arena) -> None:
        """Subscribe to the ends of runs."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._done = 0

        async def quiet_ended(message: Msg) -> None:
            probe = self._waiting.popleft()
            if json.loads(message.data)["status"] == "SUCCESS" and not probe.done():
                probe.set_result(None)

        async def loud_ended(_: Msg) -> None:
            self._done += 1

        await listen(arena, arena.quiet, "workflow.*.finished", quiet_ended)
        await listen(arena, arena.loud, "workflow.*.finished", loud_ended)

    async def probe(self, arena: Arena, number: int) -> None:
        """Report and wait until the flow has run; runs of the flow end in the order of reports."""
        ended = asyncio.get_running_loop().create_future()
        self._waiting.append(ended)
        await _report(arena.http, self.logins[0], number)
        await ended

    async def attack(self, count: Count) -> None:
        """Report at a steady rate."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            started, number = time.monotonic(), 0
            while True:
                tasks.create_task(self._report(http, number, count))
                number += 1
                await asyncio.sleep(started + number / RATE - time.monotonic())

    async def _report(self, http: aiohttp.ClientSession, number: int, count: Count) -> None:
        await _report(http, self.logins[1], number)
        count()

    async def progress(self, arena: Arena) -> int:
        """Return how many runs have ended."""
        return self._done

    async def pending(self, arena: Arena) -> int:
        """Return how many runs have not ended."""
        database = arena.platform.database().client["thingway_workflow"]
        return await asyncio.to_thread(
            database["runs"].count_documents, {"status": "RUNNING", "replica": {"$gte": ""}}
        )


async def _add_flows(arena: Arena, tenant: Tenant, number: int) -> None:
    key = f"direct.device.{tenant.devices[0][1].name}.at"
    nodes = [
        {
            "id": "start",
            "componentName": "eventListener",
            "data": {"parameters": {"entities": [key]}},
        },
        {"id": "end", "componentName": "output", "data": {"parameters": {}}},
    ]
    design = json.dumps({"nodes": nodes, "edges": [{"source": "start", "target": "end"}]})
    headers = {"Authorization": f"Bearer {tenant.token}"}
    for flow in range(number):
        body = {"name": f"Flow {flow}", "enabled": True, "design_data": design}
        async with arena.http.post("/workflow/flows/design", json=body, headers=headers) as answer:
            await data(answer)


async def _report(http: aiohttp.ClientSession, login: tuple[str, str], number: int) -> None:
    headers = {"Authorization": aiohttp.encode_basic_auth(*login)}
    body = {"properties": {"at": float(number)}}
    async with http.post(f"/ingest/v1/{login[0]}/report", json=body, headers=headers) as answer:
        await data(answer)
