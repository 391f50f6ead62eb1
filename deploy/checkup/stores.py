"""Checks of MongoDB and Redis: reachable, writable, primary, clock, disk."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from redis.exceptions import NoPermissionError

from deploy.checkup.findings import CHECK_SECONDS, Finding, assess, check_failed
from deploy.platform.migrations import MIGRATIONS
from libs.common.store.lease import Lease
from libs.common.store.migrations import MIGRATIONS as KEPT
from libs.common.store.migrations import RESTORING, due
from libs.common.store.mongo import Database, Mongo, StoreError
from libs.common.store.redis import RedisError, connect_redis
from libs.common.store_metrics import read_disk

MEMBER_POLLS = 40
"""Polls for members that the driver has not found yet; two seconds in all."""
MAX_SKEW = 2.0
"""Tolerated difference of clocks in seconds."""
FULL = 0.8
"""Share of a volume at which it counts as nearly full."""
_GB = 1e9
_PROBE = "tw:doctor"


async def check_mongo(url: str, database: str) -> list[Finding]:
    """Check MongoDB as the user of a service."""
    subject = f"mongo {database}"
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(CHECK_SECONDS):
            mongo = Mongo(url, database)
            stack.push_async_callback(mongo.close)
            return [
                await check_members(subject, mongo),
                await _writable(subject, mongo.database),
                await _disk(mongo.database),
                await _migrations(database, mongo.database),
            ]
    except (StoreError, TimeoutError, ValueError) as error:
        return [check_failed(subject, error, "stores")]


async def check_members(subject: str, mongo: Mongo) -> Finding:
    """Check the clock, the primary and the members of the replica set."""
    before = datetime.now(UTC)
    hello = await mongo.database.command("hello")
    differs = clock_skew(before, hello["localTime"].replace(tzinfo=UTC), datetime.now(UTC))
    if differs > MAX_SKEW:
        return assess(f"{subject} clock", f"differs by {differs:.1f} s", "", "clock")
    primary, expected = hello.get("primary", ""), len(hello.get("hosts", []))
    if not primary:
        return assess(subject, "no member is primary", "", "stores")
    seen = await _count_members(mongo, expected)
    wrong = f"{seen} of {expected} members answer" if seen < expected else ""
    right = f"replica set {hello.get('setName')}, {expected} members, primary {primary}"
    return assess(subject, wrong, right, "stores", minor=True)


async def _count_members(mongo: Mongo, expected: int) -> int:
    """Return how many members the driver finds within two seconds."""
    for _ in range(MEMBER_POLLS):
        if len(mongo.client.nodes) >= expected:
            break
        await asyncio.sleep(0.05)
    return len(mongo.client.nodes)


def clock_skew(before: datetime, theirs: datetime, after: datetime) -> float:
    """Return by how many seconds another clock differs at least.

    `before` and `after` are the times of request and response on our clock.
    """
    return max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)


async def _writable(subject: str, database: Database) -> Finding:
    lease = Lease(database, "doctor")
    taken = await lease.acquire()
    await lease.release()
    busy = "" if taken else "; another doctor is running"
    return assess(f"{subject} writes", "", f"acknowledged by a majority{busy}", "stores")


async def _disk(database: Database) -> Finding:
    used, size = await read_disk(database)
    text = f"{used / _GB:.1f} of {size / _GB:.1f} GB used"
    return assess("mongo disk", text if used > FULL * size else "", text, "thingwaydiskfilling")


async def _migrations(name: str, database: Database) -> Finding:
    subject, known = f"migrations of {name}", MIGRATIONS.get(name, ())
    if await database[KEPT].find_one({"_id": RESTORING}) is not None:
        text = "a restore is in progress, or was interrupted"
        return assess(subject, text, "", "migrations")
    missing = await due(database, known, contract=False)
    wrong = ", ".join(f"{migration.number} ({migration.title})" for migration in missing)
    text = f"missing: {wrong}" if wrong else ""
    return assess(subject, text, f"{len(known)} known, none due", "migrations")


async def check_redis(url: str) -> list[Finding]:
    """Check Redis as the user of a service."""
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(CHECK_SECONDS):
            redis = connect_redis(url)
            stack.push_async_callback(redis.aclose)
            await redis.ping()
            try:
                await redis.set(_PROBE, "1", ex=5)
            except NoPermissionError:
                return [assess("redis", "", "answers; this user can only read", "stores")]
            return [assess("redis", "", "answers and accepts writes", "stores")]
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        return [check_failed("redis", error, "stores")]
