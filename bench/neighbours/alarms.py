"""Alarms: devices of one tenant exceed the thresholds of many rules, and return."""

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import count as numbers
from typing import Any, ClassVar

import aiohttp
import aiomqtt
import msgspec
from nats.aio.msg import Msg

from bench.neighbours.harness import Arena, Contest, Count, listen
from bench.tenants import Tenant, data
from libs.common.clock import now_ms

DEVICES = 20
"""Devices of the quiet tenant; each probe uses another one."""
HIGH, LOW = 1000.0, 0.0


class _Alarms(Contest):
    """A probe reports a value and ends with the event of the alarm that it raises or clears."""

    rules: ClassVar[int] = 0
    """Rules per device of the attacker."""
    rate: ClassVar[float] = 0.0
    """Reports per second of all devices of the attacker."""
    condition: ClassVar[dict[str, Any]] = {}
    """Fields of its rules in addition to the threshold."""

    async def prepare(self, arena: Arena) -> None:
        """Create the rules, and listen."""
        self.mqtt = "127.0.0.1", arena.platform.mqtt_port
        self.logins = [login for _, login in arena.loud.devices]
        self._changes: dict[tuple[int, int], asyncio.Future[None]] = {}
        await _add_rule(arena, arena.quiet, {"product": "LIVE"}, 500)
        for device, _ in arena.loud.devices:
            for number in range(self.rules):
                target = {"device_id": str(device)}
                await _add_rule(arena, arena.loud, target, 10 + number, **self.condition)
        await listen(arena, arena.quiet, "alarm.>", self._changed)
        await asyncio.sleep(2)  # every process knows the rules

    async def probe(self, arena: Arena, number: int) -> None:
        """Raise or clear an alarm."""
        device, login = arena.quiet.devices[number % DEVICES]
        ts, high = now_ms(), number // DEVICES % 2 == 0
        self._changes[device, ts] = changed = asyncio.get_running_loop().create_future()
        body = {"ts": ts, "properties": {"at": HIGH if high else LOW}}
        headers = {"Authorization": aiohttp.encode_basic_auth(login.name, login.key)}
        path = f"/ingest/v1/{login.name}/report"
        async with arena.http.post(path, json=body, headers=headers) as answer:
            await data(answer)
        await changed

    async def attack(self, count: Count) -> None:
        """Report over MQTT at a steady rate; each device goes beyond all thresholds and back."""
        host, port = self.mqtt
        async with AsyncExitStack() as stack:
            clients = [
                (
                    login.name,
                    await stack.enter_async_context(
                        aiomqtt.Client(host, port, username=login.name, password=login.key)
                    ),
                )
                for login in self.logins
            ]
            due = time.monotonic()
            for number in numbers():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += 1 / self.rate
                name, client = clients[number % len(clients)]
                value = HIGH if number // len(clients) % 2 == 0 else LOW
                body = msgspec.json.encode({"ts": now_ms(), "properties": {"at": value}})
                await client.publish(f"thing/{name}/up/report", body, qos=1)
                count()

    async def progress(self, arena: Arena) -> int:
        """Count the alarms of the attacker."""
        body = {"page_size": 1, "page_number": 1}
        headers = {"Authorization": f"Bearer {arena.loud.token}"}
        async with arena.http.post("/alarms/search", json=body, headers=headers) as answer:
            return int((await data(answer))["total"])

    async def check(self, arena: Arena) -> None:
        """Raise unless all rules of a device have raised the same alarms."""
        if (alarms := await self.progress(arena)) % self.rules:
            raise RuntimeError(f"{alarms} alarms of {self.rules} rules of each device")

    async def _changed(self, message: Msg) -> None:
        event = msgspec.json.decode(message.data)
        at = event.get("clearedAt") or event["raisedAt"]
        found = self._changes.pop((int(message.subject.split(".")[3]), at), None)
        if found is not None and not found.done():
            found.set_result(None)


class ManyRules(_Alarms):
    """Each report changes all states of its device."""

    name = "1. 10 devices with 50 alarm rules, 12 reports/s; an alarm"
    devices: ClassVar = (DEVICES, 10)
    rules, rate = 50, 12.0


class BusyKey(_Alarms):
    """One device that reports fast."""

    name = "1b. a device with 10 alarm rules, 100 reports/s; an alarm"
    devices: ClassVar = (DEVICES, 1)
    rules, rate = 10, 100.0


class Durations(_Alarms):
    """States are evaluated by reports and by the clock."""

    name = "1c. 20 devices with 50 rules with a duration of 1 s, 12 reports/s; an alarm"
    devices: ClassVar = (DEVICES, 20)
    rules, rate = 50, 12.0
    condition: ClassVar = {"seconds": 1}


async def _add_rule(
    arena: Arena, tenant: Tenant, target: dict[str, str], threshold: float, **more: Any
) -> None:
    condition = {"type": "VALUE", "property": "at", "comparison": "GT", "threshold": threshold}
    body = {"name": "high", "severity": "CRITICAL", "condition": condition | more, **target}
    headers = {"Authorization": f"Bearer {tenant.token}"}
    async with arena.http.post("/alarm-rules", json=body, headers=headers) as answer:
        await data(answer)
