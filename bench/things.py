"""Benchmark of entities that are not stored: search, and adding a device.

`device` runs on servers without passwords and is called like from the gateway. Devices are written
to the database, `DEVICES` of a product with `MEMBERS` entities. Rounds alternate; medians count.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
from pymongo import MongoClient

from bench.stack import ready, stack
from bench.table import Row, median_value
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.functions import Function

DEVICES, MEMBERS = 100_000, 50
SMALL_TSL, LARGE_TSL = 10, 1_000
SEARCHES, ADDED = 60, 200
TENANT = "default"
PRODUCT = "/device/openapi/v1/products"

Json = dict[str, Any]


@dataclass
class Running:
    """The running service."""

    http: aiohttp.ClientSession
    signer: HeaderSigner
    mongo: MongoClient[Json]
    nats_url: str

    @staticmethod
    def principal(kind: PrincipalKind, subject: str = "1") -> Principal:
        """Return a caller; user 1 is a super-admin, others have all permissions."""
        everything, all_of_it = frozenset(Function), kind is PrincipalKind.USER and subject == "1"
        return Principal(kind, TENANT, subject, functions=everything, super_admin=all_of_it)

    async def call(
        self, kind: PrincipalKind, method: str, path: str, body: Json, subject: str = "1"
    ) -> float:
        """Call an operation; return the seconds it took."""
        headers = {PRINCIPAL_HEADER: self.signer.sign(self.principal(kind, subject))}
        started = time.perf_counter()
        async with self.http.request(method, path, json=body, headers=headers) as answer:
            content = await answer.read()
            seconds = time.perf_counter() - started
        if not answer.ok:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]!r}")
        return seconds

    async def put_product(self, model: str, members: int) -> None:
        """Create a product with `members` properties."""
        properties = [
            {"id": f"value_{number}", "accessMode": "R", "dataSpec": {"dataType": "FLOAT"}}
            for number in range(members)
        ]
        tsl = {"version": "v1", "properties": properties}
        body = {"name": model, "tsl": tsl}
        await self.call(PrincipalKind.APPLICATION, "PUT", f"{PRODUCT}/{model}", body)


@asynccontextmanager
async def device_service() -> AsyncIterator[Running]:
    """Start `device` with its servers."""
    private, public = generate_keys()
    async with stack() as servers:
        _, port = servers.start(
            "services.device", THINGWAY_INTERNAL_PUBLIC_KEY=public, THINGWAY_LOG_LEVEL="WARNING"
        )
        await ready(port)
        mongo: MongoClient[Json] = MongoClient(servers.mongo_url)
        with mongo:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
                yield Running(http, HeaderSigner(private), mongo, servers.nats_url)


def _fill(running: Running) -> None:
    """Write devices like `device`."""
    devices = running.mongo["bench"]["devices"]
    now = datetime.now(UTC)
    for first in range(0, DEVICES, 10_000):
        devices.insert_many(
            {
                "_id": number,
                "tenant": TENANT,
                "sn": f"BENCH{number}",
                "snKey": f"BENCH{number}",
                "integration": "direct",
                "identifier": f"BENCH{number}",
                "name": f"device {number}",
                "model": "FIFTY",
                "tslVersion": "v1",
                "createdAt": now,
                "updatedAt": now,
            }
            for number in range(first + 1, min(first + 10_000, DEVICES) + 1)
        )


async def searches(running: Running) -> list[Row]:
    """Compare the first page of entities with the first page of devices."""
    await running.put_product("FIFTY", MEMBERS)
    await asyncio.to_thread(_fill, running)
    page = {"page_size": 10, "page_number": 1}
    by_key = {**page, "sorts": [{"direction": "ASC", "property": "key"}]}
    requests: dict[str, tuple[str, Json]] = {
        "devices": ("/device/search", page),
        "entities": ("/entity/search", page),
        "entities by key": ("/entity/search", by_key),
        "devices by name": ("/device/search", {**page, "name": "value_7"}),
        "entities by keyword": ("/entity/search", {**page, "keyword": "value_7"}),
    }
    times: dict[str, list[float]] = {name: [] for name in requests}
    for _ in range(SEARCHES):
        for name, (path, body) in requests.items():
            times[name].append(await running.call(PrincipalKind.USER, "POST", path, body))
    found = {name: median_value(some) * 1000 for name, some in times.items()}
    size = f"{DEVICES:,} devices of {MEMBERS}"
    return [
        *(
            Row(
                f"first page of {name}, {size}, ms",
                f"{found[name]:.1f}",
                f"{found['devices']:.1f} devices",
                found[name] / found["devices"],
                "<= 5.0",
                found[name] <= 5 * found["devices"],
            )
            for name in ("entities", "entities by key")
        ),
        Row(
            f"first page of entities by keyword, {size}, ms",
            f"{found['entities by keyword']:.1f}",
            f"{found['devices by name']:.1f} devices by name",
            found["entities by keyword"] / found["devices by name"],
        ),
    ]


async def additions(running: Running) -> list[Row]:
    """Compare adding a device of a product with many entities and one with few."""
    times: dict[str, list[float]] = {"SMALL": [], "LARGE": []}
    await running.put_product("SMALL", SMALL_TSL)
    await running.put_product("LARGE", LARGE_TSL)
    for number in range(ADDED):
        for model, some in times.items():
            body = {"snDevEUI": f"{model}{number}", "name": "added", "model": model}
            path = "/device/openapi/v1/devices"
            some.append(await running.call(PrincipalKind.APPLICATION, "POST", path, body))
    small, large = (median_value(some) * 1000 for some in times.values())
    return [
        Row(
            f"adding a device, TSL of {LARGE_TSL:,} members, ms",
            f"{large:.2f}",
            f"{small:.2f} with {SMALL_TSL}",
            large / small,
            "<= 1.2",
            large <= 1.2 * small,
        )
    ]


async def run() -> list[Row]:
    """Run the benchmark."""
    async with device_service() as running:
        return [*await additions(running), *await searches(running)]


if __name__ == "__main__":
    for row in asyncio.run(run()):
        print(row)
