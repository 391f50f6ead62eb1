"""Reports: many devices of one tenant report as fast as they get responses."""

import asyncio
from typing import ClassVar

import aiohttp

from bench.neighbours.harness import Arena, Contest, Count
from bench.tenants import data


class Reports(Contest):
    """HTTP reports until they are stored."""

    name = "0. 8 devices report as fast as they can; a report with wait=stored"
    devices: ClassVar = (1, 8)

    async def prepare(self, arena: Arena) -> None:
        """Keep the logins."""
        self.base = arena.base
        self.logins = [(login.name, login.key) for _, login in arena.loud.devices]
        _, login = arena.quiet.devices[0]
        self.quiet = (login.name, login.key)

    async def probe(self, arena: Arena, number: int) -> None:
        """Report and wait until it is stored."""
        await report(arena.http, self.quiet, number)

    async def attack(self, count: Count) -> None:
        """Report without a pause."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            for login in self.logins:
                tasks.create_task(self._reports(http, login, count))

    async def _reports(
        self, http: aiohttp.ClientSession, login: tuple[str, str], count: Count
    ) -> None:
        number = 0
        while True:
            await report(http, login, number := number + 1)
            count()


async def report(http: aiohttp.ClientSession, login: tuple[str, str], number: int) -> None:
    """Report and wait until it is stored."""
    path = f"/ingest/v1/{login[0]}/report?wait=stored"
    headers = {"Authorization": aiohttp.encode_basic_auth(*login)}
    body = {"properties": {"at": float(number)}}
    async with http.post(path, json=body, headers=headers) as answer:
        await data(answer)
