"""MongoDB and Redis: reachable, writable, who is primary; clock, disk, migrations."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from redis.exceptions import NoPermissionError

from deploy.checkup.findings import CHECK_SECONDS, Finding, failed, found
from deploy.platform.migrations import MIGRATIONS
from libs.common.store.lease import Lease
from libs.common.store.migrations import MIGRATIONS as KEPT
from libs.common.store.migrations import RESTORING, due
from libs.common.store.mongo import Database, Mongo, StoreError
from libs.common.store.redis import RedisError, connect_redis
from libs.common.store_metrics import read_disk

MEMBERS_LOOKS = 40
"""How often to look for members that are not found yet: for two seconds."""
MOST_SKEW = 2.0
"""Seconds that clocks may differ."""
FULL = 0.8
"""Part of a volume from which on it is nearly full."""
_GB = 1e9
_PROBE = "tw:doctor"


async def check_mongo(url: str, database: str) -> list[Finding]:
    """What the login of a service sees of MongoDB."""
    subject = f"mongo {database}"
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(CHECK_SECONDS):
            mongo = Mongo(url, database)
            stack.push_async_callback(mongo.close)
            return [
                await members(subject, mongo),
                await _writable(subject, mongo.database),
                await _disk(mongo.database),
                await _migrations(database, mongo.database),
            ]
    except (StoreError, TimeoutError, ValueError) as error:
        return [failed(subject, error, "stores")]


async def members(subject: str, mongo: Mongo) -> Finding:
    """Whether there is a primary, and every member."""
    before = datetime.now(UTC)
    hello = await mongo.database.command("hello")
    differs = skew(before, hello["localTime"].replace(tzinfo=UTC), datetime.now(UTC))
    if differs > MOST_SKEW:
        return found(f"{subject} clock", f"differs by {differs:.1f} s", "", "clock")
    primary, wanted = hello.get("primary", ""), len(hello.get("hosts", []))
    if not primary:
        return found(subject, "no member is primary", "", "stores")
    seen = await _reached(mongo, wanted)
    wrong = f"{seen} of {wanted} members answer" if seen < wanted else ""
    right = f"replica set {hello.get('setName')}, {wanted} members, primary {primary}"
    return found(subject, wrong, right, "stores", minor=True)


async def _reached(mongo: Mongo, wanted: int) -> int:
    """How many members the driver has found, which it is given a moment for."""
    for _ in range(MEMBERS_LOOKS):
        if len(mongo.client.nodes) >= wanted:
            break
        await asyncio.sleep(0.05)
    return len(mongo.client.nodes)


def skew(before: datetime, theirs: datetime, after: datetime) -> float:
    """Seconds by which another clock differs, at least, given when it was asked and answered."""
    return max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)


async def _writable(subject: str, database: Database) -> Finding:
    lease = Lease(database, "doctor")
    taken = await lease.acquire()
    await lease.release()
    busy = "" if taken else "; another doctor is at work"
    return found(f"{subject} writes", "", f"acknowledged by the majority{busy}", "stores")


async def _disk(database: Database) -> Finding:
    used, size = await read_disk(database)
    text = f"{used / _GB:.1f} of {size / _GB:.1f} GB used"
    return found("mongo disk", text if used > FULL * size else "", text, "thingwaydiskfilling")


async def _migrations(name: str, database: Database) -> Finding:
    subject, known = f"migrations of {name}", MIGRATIONS.get(name, ())
    if await database[KEPT].find_one({"_id": RESTORING}) is not None:
        text = "a backup is being restored, or was not to the end"
        return found(subject, text, "", "migrations")
    missing = await due(database, known, contract=False)
    wrong = ", ".join(f"{one.number} ({one.title})" for one in missing)
    text = f"missing: {wrong}" if wrong else ""
    return found(subject, text, f"{len(known)} known, none is due", "migrations")


async def check_redis(url: str) -> list[Finding]:
    """What the login of a service sees of Redis."""
    try:
        async with AsyncExitStack() as stack, asyncio.timeout(CHECK_SECONDS):
            redis = connect_redis(url)
            stack.push_async_callback(redis.aclose)
            await redis.ping()
            try:
                await redis.set(_PROBE, "1", ex=5)
            except NoPermissionError:
                return [found("redis", "", "answers; this login only reads", "stores")]
            return [found("redis", "", "answers and takes writes", "stores")]
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        return [failed("redis", error, "stores")]
