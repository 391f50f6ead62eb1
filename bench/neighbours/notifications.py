"""Alarm notifications: one sensor flaps, and many users are notified."""

import asyncio
from collections import Counter
from typing import Any, ClassVar

import aiohttp
from aiohttp import web
from pymongo import MongoClient

from bench.neighbours.harness import Arena, Contest, Count
from bench.neighbours.users import SignedInUser, add_users
from bench.tenants import data
from deploy.platform import ports

RATE = 3.6
"""Reports per second of the sensor that flaps."""
HIGH, LOW = 1000.0, 0.0
QUIET_DEVICES = 20
"""Devices of the quiet tenant: a probe raises the alarm of the next one."""


class Notifications(Contest):
    """A sensor flaps, and 40 users have webhooks; an alarm until a webhook is called."""

    name = "2. 40 users subscribed to a sensor that flaps; an alarm until it is notified"
    settings: ClassVar = {"THINGWAY_OUTGOING_NETWORKS": "127.0.0.0/8"}
    devices: ClassVar = (QUIET_DEVICES, 1)
    users: ClassVar[int] = 40
    seconds: ClassVar[float] = 0.0
    """Seconds until a webhook of the loud tenant responds."""

    async def prepare(self, arena: Arena) -> None:
        """Create rules and users with webhooks, which this process answers."""
        self.base = arena.base
        (_, login), *_ = arena.loud.devices
        self.login = (login.name, login.key)
        self._messages: Counter[int] = Counter()
        self._alarms: Counter[int] = Counter()
        self._raised: dict[float, asyncio.Future[None]] = {}
        self._turns = [asyncio.Lock() for _ in arena.quiet.devices]
        port = await self._serve(arena)
        people = await add_users(arena, self.users)
        mine = SignedInUser(arena.http, arena.quiet.token)
        for person, tenant in ((mine, "quiet"), (people[0], "loud")):
            condition = {"type": "VALUE", "property": "at", "comparison": "GTE", "threshold": HIGH}
            rule = {"name": "high", "severity": "CRITICAL", "product": "LIVE"}
            await person.post("/alarm-rules", rule | {"condition": condition})
            owners = [mine] if tenant == "quiet" else people
            for number, owner in enumerate(owners):
                hook = {"url": f"http://127.0.0.1:{port}/{tenant}/{number}"}
                wanted = {"severities": ["CRITICAL"], "changes": ["raised", "cleared"]}
                await owner.put("/alarm-notifications", wanted | {"webhook": hook})
        await asyncio.sleep(2)  # until the rules are in force

    async def probe(self, arena: Arena, number: int) -> float:
        """Report a value that raises an alarm, wait for the webhook, and end the alarm."""
        loop, value = asyncio.get_running_loop(), HIGH + number
        at = number % len(self._turns)
        async with self._turns[at]:
            _, login = arena.quiet.devices[at]
            began, notified = loop.time(), loop.create_future()
            self._raised[value] = notified
            await _report(arena.http, (login.name, login.key), value)
            await notified
            took = loop.time() - began
            await _report(arena.http, (login.name, login.key), LOW)
        return took

    async def attack(self, count: Count) -> None:
        """Report values that raise and end the alarm."""
        async with aiohttp.ClientSession(self.base) as http:
            number = 0
            while True:
                number += 1
                await _report(http, self.login, HIGH if number % 2 else LOW)
                count()
                await asyncio.sleep(1 / RATE)

    async def progress(self, arena: Arena) -> int:
        """Return how many messages the loud tenant's users got."""
        return self._messages.total()

    async def pending(self, arena: Arena) -> int:
        """Return how many notices wait."""
        password = arena.platform.state["secrets"]["mongo.admin"]
        port = arena.platform.state["ports"]["mongod"]
        url = f"mongodb://admin:{password}@127.0.0.1:{port}/?directConnection=true"
        with MongoClient[dict[str, Any]](url) as client:
            return client["thingway_workflow"]["alarm_notices"].count_documents({"tenant": "loud"})

    async def check(self, arena: Arena) -> None:
        """Raise unless all users of the loud tenant were notified of the same alarms."""
        counts = [self._alarms[user] for user in range(self.users)]
        if min(counts) != max(counts):
            raise RuntimeError(f"alarms were lost: {sorted(counts)}")

    async def _serve(self, arena: Arena) -> int:
        app = web.Application()
        app.router.add_post("/{tenant}/{user}", self._receive)
        runner = web.AppRunner(app)
        await runner.setup()
        arena.stack.push_async_callback(runner.cleanup)
        port = ports.claim_random()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return port

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.match_info["tenant"] == "quiet":
            for alarm in body["alarms"]:
                notified = self._raised.get(alarm["value"])
                if notified is not None and not notified.done():
                    notified.set_result(None)
            return web.Response()
        await asyncio.sleep(self.seconds)
        user = int(request.match_info["user"])
        self._messages[user] += 1
        self._alarms[user] += len(body["alarms"]) + body["more"]
        return web.Response()


class SlowWebhooks(Notifications):
    """24 users have webhooks that answer late; an alarm until a webhook is called."""

    name = "3. 24 users with webhooks that answer after 25 s; an alarm until it is notified"
    users = 24
    seconds = 25.0


async def _report(http: aiohttp.ClientSession, login: tuple[str, str], value: float) -> None:
    headers = {"Authorization": aiohttp.encode_basic_auth(*login)}
    body = {"properties": {"at": value}}
    path = f"/ingest/v1/{login[0]}/report"
    async with http.post(path, json=body, headers=headers) as answer:
        await data(answer)
