"""Benchmark of permission checks, grants in searches, and logins.

`auth`, `device`, `management` and one gateway run on servers without passwords, so that commands of
Redis and NATS can be counted. An application, whose API has no grants, and a user read the same
device. Rounds alternate; medians count.
"""

import asyncio
import contextlib
import copy
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from pymongo import MongoClient

from bench.stack import Stack, ready, stack
from bench.table import Row, median_value
from deploy.local import programs
from deploy.platform import ports, redis_server
from libs.common.bus import Bus, RpcClient
from libs.common.bus.nkeys import KeyKind, KeyPair
from libs.common.contracts.auth import (
    ApplicationSecret,
    CreateApplication,
    CreateUser,
    UserPassword,
)
from libs.common.identity import generate_keys
from libs.common.store.redis import Redis, connect_redis

DEVICES, GRANTED = 100_000, 10_000
REQUESTS, SEARCHES, ROUNDS = 500, 60, 5
USERS, STORM_SECONDS, STORM_CONNECTIONS = 50, 6, 16
PACE = 0.01
"""Seconds between two requests of each of the `PROBERS`."""
PROBERS = 2
CLIENT = ("bench", secrets.token_hex(8))
ROLE = 900_001

Json = dict[str, Any]


@dataclass
class Running:
    """The running services and clients for them."""

    url: str
    redis: Redis
    bus: Bus
    rpc: RpcClient
    mongo: MongoClient[Json]
    directory: Path

    async def user(self, number: int, *, super_admin: bool = False) -> UserPassword:
        """Create a user."""
        request = CreateUser(
            email=f"bench{number}@example.org", nickname="Bench", super_admin=super_admin
        )
        return await self.rpc.call("rpc.auth.create_user", request, UserPassword)

    async def log_in(self, http: aiohttp.ClientSession, user: UserPassword) -> Json:
        """Return the request headers of a user."""
        form = {
            "grant_type": "password",
            "username": user.email,
            "password": user.password,
            "client_id": CLIENT[0],
            "client_secret": CLIENT[1],
        }
        async with http.post("/oauth2/token", data=form) as answer:
            body = await answer.json()
        return {"Authorization": f"Bearer {body['access_token']}"}

    async def application(self, http: aiohttp.ClientSession) -> Json:
        """Return the request headers of a new application."""
        made = await self.rpc.call(
            "rpc.auth.create_application", CreateApplication("bench"), ApplicationSecret
        )
        form = {
            "grant_type": "client_credentials",
            "client_id": made.client_id,
            "client_secret": made.client_secret,
        }
        async with http.post("/oauth/token", data=form) as answer:
            body = await answer.json()
        return {"Authorization": f"Bearer {body['data']['access_token']}"}


@asynccontextmanager
async def _running() -> AsyncIterator[Running]:
    private, public = generate_keys()
    async with stack() as servers, contextlib.AsyncExitStack() as cleanup:
        redis_url = await _redis(servers)
        shared = {
            "THINGWAY_REDIS_URL": redis_url,
            "THINGWAY_INTERNAL_PUBLIC_KEY": public,
            "THINGWAY_LOG_LEVEL": "WARNING",
        }
        _, auth = servers.start(
            "services.auth",
            THINGWAY_MONGO_DATABASE="auth",
            THINGWAY_CALLOUT_SEED=KeyPair.create(KeyKind.ACCOUNT).seed,
            THINGWAY_CONSOLE_CLIENT_ID=CLIENT[0],
            THINGWAY_CONSOLE_CLIENT_SECRET=CLIENT[1],
            **shared,
        )
        _, device = servers.start("services.device", THINGWAY_MONGO_DATABASE="device", **shared)
        _, management = servers.start(
            "services.management",
            THINGWAY_MONGO_DATABASE="management",
            THINGWAY_SECRETS_KEY=generate_keys()[0],
            **shared,
        )
        for port in (auth, device, management):
            await ready(port)
        rates = {f"THINGWAY_{name}_RATE": "0" for name in ("PRINCIPAL", "ADDRESS", "TOKEN")}
        _, gateway = servers.start(
            "services.gateway",
            THINGWAY_INTERNAL_PRIVATE_KEY=private,
            THINGWAY_UPSTREAMS=f"auth=http://127.0.0.1:{auth},device=http://127.0.0.1:{device}",
            **shared,
            **rates,
        )
        await ready(gateway)
        bus = await Bus.connect(servers.nats_url, name="bench")
        cleanup.push_async_callback(bus.drain)
        redis = await cleanup.enter_async_context(connect_redis(redis_url))
        mongo: MongoClient[Json] = cleanup.enter_context(MongoClient(servers.mongo_url))
        url = f"http://127.0.0.1:{gateway}"
        yield Running(url, redis, bus, RpcClient(bus), mongo, servers.directory)


async def _redis(servers: Stack) -> str:
    port = ports.claim_random()
    program = programs.find_program(programs.REDIS).path
    child = subprocess.Popen(
        redis_server.bare_server_command(program, servers.directory, port),
        stdout=subprocess.DEVNULL,
    )
    servers.children.append(child)
    url = f"redis://127.0.0.1:{port}/0"
    await redis_server.wait_ready(url)
    return url


async def _add_devices(running: Running, http: aiohttp.ClientSession, headers: Json) -> int:
    """Add a device through the API, and copies to the database; return the first id."""
    body = {"snDevEUI": "BENCH", "name": "Bench"}
    path = "/device/openapi/v1/devices"
    async with http.post(path, json=body, headers=headers) as answer:
        first = int((await answer.json())["data"]["deviceId"])
    devices = running.mongo["device"]["devices"]
    template = devices.find_one({"_id": first})
    if template is None:
        raise RuntimeError("the device is not there")
    for start in range(1, DEVICES, 10_000):
        devices.insert_many(
            [_copy(template, number) for number in range(start, min(start + 10_000, DEVICES))],
            ordered=False,
        )
    return first


def _copy(template: Json, number: int) -> Json:
    sn = f"BENCH{number}"
    changed = {"_id": template["_id"] + number, "sn": sn, "snKey": sn, "identifier": sn}
    return copy.copy(template) | changed | {"name": f"Bench {number}"}


def _grant(running: Running, user: UserPassword, first: int) -> None:
    """Let a user search devices and see every tenth one, before its first request."""
    auth = running.mongo["auth"]
    now = datetime.now(UTC)
    menus = [menu["_id"] for menu in auth["menus"].find({"code": "device.view"})]
    role = {"_id": ROLE, "tenant": "default", "name": "bench", "menus": menus}
    auth["roles"].insert_one(role | {"description": "", "createdAt": now, "updatedAt": now})
    auth["users"].update_one({"_id": user.user_id}, {"$set": {"roles": [ROLE]}})
    grant = {"tenant": "default", "role": ROLE, "type": "DEVICE", "at": None}
    ids = range(first, first + DEVICES, DEVICES // GRANTED)
    auth["grants"].insert_many([grant | {"id": id_} for id_ in ids], ordered=False)


async def _timed(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the milliseconds that a call takes."""
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


class Calls:
    """Requests of one caller."""

    def __init__(self, http: aiohttp.ClientSession, headers: Json) -> None:
        self._http = http
        self._headers = headers

    async def get(self, path: str) -> None:
        """Read a path; raise unless it succeeds."""
        async with self._http.get(path, headers=self._headers) as answer:
            answer.raise_for_status()
            await answer.read()

    async def search(self, total: int) -> None:
        """Search devices; raise unless `total` devices are found."""
        body = {"page_size": 10, "page_number": 1}
        async with self._http.post("/device/search", json=body, headers=self._headers) as answer:
            answer.raise_for_status()
            found = (await answer.json())["data"]
        if (found["total"], len(found["content"])) != (total, 10):
            raise RuntimeError(f"{found['total']} devices are seen, not {total}")


async def _commands(running: Running) -> int:
    """Return how many commands Redis has executed."""
    found = await running.redis.info("stats")
    return int(found["total_commands_processed"])


async def _check_rows(running: Running, app: Calls, user: Calls, device: int) -> list[Row]:
    """Measure the cost of a permission check with cached grants."""
    calls_seen: list[str] = []

    async def count(message: Any) -> None:
        calls_seen.append(message.subject)

    subscription = await running.bus.client.subscribe("rpc.>", cb=count)
    by_app = f"/device/openapi/v1/devices/{device}"
    by_user = f"/device/{device}"
    counts: dict[str, int] = {}
    for name, calls, path in (("app", app, by_app), ("user", user, by_user)):
        await calls.get(path)
        await running.bus.client.flush()
        calls_seen.clear()
        before = await _commands(running)
        for _ in range(REQUESTS):
            await calls.get(path)
        await running.bus.client.flush()
        counts[name] = await _commands(running) - before + len(calls_seen)
    await subscription.unsubscribe()
    times = [
        (await _timed(lambda: app.get(by_app)), await _timed(lambda: user.get(by_user)))
        for _ in range(REQUESTS)
    ]
    per_user, per_app = counts["user"] / REQUESTS, counts["app"] / REQUESTS
    extra = round(per_user - per_app, 1) + 0.0  # no "-0"
    mine, theirs = (
        median_value([user for _, user in times]),
        median_value([app for app, _ in times]),
    )
    return [
        Row(
            "round trips of a permission check, grants cached (Redis commands + rpcs)",
            f"{extra:g} extra",
            f"{per_app:.1f} by an application",
            bar="0 extra",
            ok=extra <= 0,
        ),
        Row(
            "GET a device by a user / by an application, p50 in ms",
            f"{mine:.2f}",
            f"{theirs:.2f}",
            mine / theirs,
        ),
    ]


async def _search_row(user: Calls, admin: Calls) -> Row:
    """Compare the search of a user with many grants with that of a super-admin."""
    for _ in range(3):
        await user.search(GRANTED)
        await admin.search(DEVICES)
    times = [
        (await _timed(lambda: user.search(GRANTED)), await _timed(lambda: admin.search(DEVICES)))
        for _ in range(SEARCHES)
    ]
    mine, theirs = (
        median_value([user for user, _ in times]),
        median_value([admin for _, admin in times]),
    )
    return Row(
        f"search of {DEVICES:,} devices, {GRANTED:,} granted / all, ms",
        f"{mine:.1f}",
        f"{theirs:.1f}",
        mine / theirs,
        "<= 2.0",
        mine <= 2 * theirs,
    )


async def _probe(calls: Calls, path: str, seconds: float) -> float:
    """Return the p99 in ms of requests at a steady pace."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def probe() -> None:
        while time.perf_counter() < until:
            times.append(await _timed(lambda: calls.get(path)))
            await asyncio.sleep(PACE)

    await asyncio.gather(*(probe() for _ in range(PROBERS)))
    return sorted(times)[int(len(times) * 0.99)]


async def _storm_rows(
    running: Running, people: list[UserPassword], app: Calls, device: int
) -> list[Row]:
    """Measure logins per second, and their effect on other requests."""
    if shutil.which("wrk") is None:
        return [Row("log-ins per second", "not measured: no wrk on PATH")]
    path = f"/device/openapi/v1/devices/{device}"
    script = running.directory / "storm.lua"
    script.write_text(_storm_script(people))
    rates, rests, storms = [], [], []
    for _ in range(ROUNDS):
        rests.append(await _probe(app, path, STORM_SECONDS))
        storm = await asyncio.create_subprocess_exec(
            *("wrk", "-t1", f"-c{STORM_CONNECTIONS}", f"-d{STORM_SECONDS}s", "-s", str(script)),
            *("--timeout", "10s", f"{running.url}/oauth2/token"),
            stdout=subprocess.PIPE,
        )
        storms.append(await _probe(app, path, STORM_SECONDS - 0.5))
        rates.append(_rate((await storm.communicate())[0].decode()))
    ratio = median_value([storm / rest for storm, rest in zip(storms, rests, strict=True)])
    return [
        Row(f"log-ins per second, {STORM_CONNECTIONS} at a time", f"{median_value(rates):.0f}"),
        Row(
            "GET a device during a storm of log-ins / at rest, p99 in ms",
            f"{median_value(storms):.1f}",
            f"{median_value(rests):.1f}",
            ratio,
            "<= 2.0",
            ratio <= 2.0,
        ),
    ]


def _storm_script(people: list[UserPassword]) -> str:
    client = f"client_id={CLIENT[0]}&client_secret={CLIENT[1]}&grant_type=password"
    forms = ",\n".join(
        f'"{client}&username={user.email}&password={user.password}"' for user in people
    )
    return f"""
        local forms = {{ {forms} }}
        local turn = 0
        wrk.method = "POST"
        wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
        request = function()
          turn = turn % #forms + 1
          return wrk.format(nil, nil, nil, forms[turn])
        end
    """


def _rate(text: str) -> float:
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None or "Non-2xx" in text:
        raise RuntimeError(f"not every log-in succeeded:\n{text}")
    return float(rate[1])


async def run() -> list[Row]:
    """Run the benchmark."""
    async with _running() as running, aiohttp.ClientSession(running.url) as http:
        bearer = await running.application(http)
        app, first = Calls(http, bearer), await _add_devices(running, http, bearer)
        super_admin = await running.user(0, super_admin=True)
        people = [await running.user(number) for number in range(1, USERS + 1)]
        _grant(running, people[0], first)
        admin = Calls(http, await running.log_in(http, super_admin))
        user = Calls(http, await running.log_in(http, people[0]))
        return [
            *await _check_rows(running, app, user, first),
            await _search_row(user, admin),
            *await _storm_rows(running, people[1:], app, first),
        ]


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
