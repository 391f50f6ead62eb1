"""Devices: large latest values, and codecs that are slow."""

import asyncio
import itertools
import secrets
import time
from typing import Any

import aiohttp

from bench.neighbours.harness import Arena, Contest, Count
from bench.neighbours.reports import report
from bench.neighbours.users import SignedInUser
from bench.tenants import Tenant, create_tenant

DEVICES, RATE = 16, 58
"""Number of devices with large values, and their reports per second."""
VALUES, LENGTH = 66, 250_000
"""Values of each of these, and characters of a value: 16 MB."""
AT_ONCE = 4
SLOW, FRAMES = 6, 10
"""Tenants with a slow codec, and frames of each per second."""
LOOP = "function decodeUplink() { for (;;) {} }"
SERVER = "webhook.integration"


def _tsl(*names: str) -> dict[str, Any]:
    spec = {"dataType": "STRING", "validator": {"maxSize": LENGTH}}
    return {
        "version": "v1.0",
        "properties": [
            {"id": name, "name": name, "accessMode": "R", "dataSpec": spec} for name in names
        ],
        "events": [],
        "services": [],
    }


class LargeValues(Contest):
    """Tiny reports of devices whose latest values are large."""

    name = (
        f"4. {DEVICES} devices with 16 MB of latest values, {RATE} reports/s; "
        "a report with wait=stored"
    )

    async def prepare(self, arena: Arena) -> None:
        """Fill the values; ignore rejections."""
        self.base = arena.base
        self.quiet = arena.quiet.devices[0][1]
        api = arena.loud.api
        names = ["tiny", *(f"large{number}" for number in range(VALUES))]
        await api.put_product("LARGE", {"name": "L", "snPrefixes": [], "tsl": _tsl(*names)})
        self.logins = []
        for number in range(DEVICES):
            device = await api.ensure_device(f"LARGE{number}", f"Large {number}", "LARGE")
            self.logins.append(await api.issue_credentials(device))
        turns = iter([(login, name) for name in names[1:] for login in self.logins])

        async def fill() -> None:
            for login, name in turns:
                headers = {"Authorization": aiohttp.encode_basic_auth(*login)}
                body = {"properties": {name: "x" * LENGTH}}
                path = f"/ingest/v1/{login[0]}/report?wait=stored"
                async with arena.http.post(path, json=body, headers=headers) as answer:
                    await answer.read()

        await asyncio.gather(*(fill() for _ in range(AT_ONCE)))

    async def probe(self, arena: Arena, number: int) -> None:
        """Report and wait until it is stored."""
        await report(arena.http, (self.quiet.name, self.quiet.key), number)

    async def attack(self, count: Count) -> None:
        """Report a short value at a steady rate."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            started = time.monotonic()
            for number in itertools.count():
                login = self.logins[number % DEVICES]
                tasks.create_task(self._report(http, login, str(number), count))
                await asyncio.sleep(started + (number + 1) / RATE - time.monotonic())

    @staticmethod
    async def _report(
        http: aiohttp.ClientSession, login: tuple[str, str], value: str, count: Count
    ) -> None:
        headers = {"Authorization": aiohttp.encode_basic_auth(*login)}
        body = {"properties": {"tiny": value}}
        path = f"/ingest/v1/{login[0]}/report?wait=stored"
        async with http.post(path, json=body, headers=headers) as answer:
            if answer.ok:
                count()


class SlowCodecs(Contest):
    """Frames of tenants whose codecs loop."""

    name = f"11. {SLOW} tenants with a codec that loops; a report with wait=stored"

    async def prepare(self, arena: Arena) -> None:
        """Give each tenant a sensor behind a webhook."""
        self.base = arena.base
        self.quiet = arena.quiet.devices[0][1]
        self.hooks = []
        for number in range(SLOW):
            tenant = arena.loud
            if number:
                tenant = await create_tenant(arena.platform, arena.stack, f"loud{number}", 0)
            self.hooks.append((await _add_sensor(arena.http, tenant, number), _eui(number)))

    async def probe(self, arena: Arena, number: int) -> None:
        """Report and wait until it is stored."""
        await report(arena.http, (self.quiet.name, self.quiet.key), number)

    async def attack(self, count: Count) -> None:
        """Send frames of all tenants at a steady rate."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            started = time.monotonic()
            for number in itertools.count():
                for hook, eui in self.hooks:
                    body = {"device": eui, "data": "00", "port": 85, "counter": number}
                    tasks.create_task(self._send(http, hook, body, count))
                await asyncio.sleep(started + (number + 1) / FRAMES - time.monotonic())

    @staticmethod
    async def _send(
        http: aiohttp.ClientSession, hook: str, body: dict[str, Any], count: Count
    ) -> None:
        async with http.post(hook, json=body) as answer:
            if answer.ok:
                count()


def _eui(number: int) -> str:
    return f"24E124136B50{number:04X}"


async def _add_sensor(http: aiohttp.ClientSession, tenant: Tenant, number: int) -> str:
    """Add a sensor with a codec that loops; return the path of its webhook."""
    await tenant.api.put_product("LOOP", {"name": "L", "snPrefixes": [], "tsl": _tsl("tiny")})
    await tenant.api.request("PUT", "/device/openapi/v1/products/LOOP/codec", {"script": LOOP})
    person, token = SignedInUser(http, tenant.token), secrets.token_urlsafe(32)
    fields = {pointer: f"/{pointer}" for pointer in ("device", "data", "port", "counter")}
    settings = {"webhook_token": token, "encoding": "hex", **fields}
    exchange = {f"{SERVER}.{name}": value for name, value in settings.items()}
    await person.post("/entity/property/update", {"exchange": exchange})
    params = {f"{SERVER}.add_device.dev_eui": _eui(number), f"{SERVER}.add_device.model": "LOOP"}
    body = {"name": "Sensor", "integration": "webhook", "param_entities": params}
    await person.post("/device", body)
    return f"/integration/hooks/{token}"
