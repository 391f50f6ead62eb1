"""Checks of MongoDB and Redis: reachable, writable, primary, clock, disk."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pkgutil import resolve_name

from redis.exceptions import NoPermissionError

from deploy.checkup.findings import Finding, build_error_finding, build_finding, run_check
from libs.common.store.lease import Lease
from libs.common.store.migrations import (
    MIGRATIONS_COLLECTION,
    RESTORING_ID,
    Migration,
    list_pending_migrations,
)
from libs.common.store.mongo import Database, Mongo, StoreError
from libs.common.store.redis import RedisError, connect_redis
from libs.common.store_metrics import read_disk

MAX_MEMBER_POLLS = 20
"""Maximum polls, every 50 ms, for members that the driver has not found yet."""
MAX_SKEW_SECONDS = 2.0
"""Maximum tolerated difference of clocks in seconds."""
NEARLY_FULL_SHARE = 0.8
"""Fraction of used bytes above which MongoDB's disk counts as nearly full."""
_GB = 1e9
_PROBE_KEY = "tw:doctor"


async def check_mongo(url: str, database: str, deadline: float) -> list[Finding]:
    """Check MongoDB as the user of a service."""
    subject = f"mongo {database}"
    try:
        mongo = Mongo(url, database)
    except (StoreError, ValueError) as error:
        return [build_error_finding(subject, error, "stores")]
    try:
        findings = await run_check(
            subject, "stores", check_members(subject, mongo), deadline, StoreError
        )
        if mongo.client.nodes:
            more = await asyncio.gather(
                run_check(
                    f"{subject} writes",
                    "stores",
                    _check_writes(subject, mongo.database),
                    deadline,
                    StoreError,
                ),
                run_check(
                    "mongo disk", "stores", _check_disk(mongo.database), deadline, StoreError
                ),
                run_check(
                    f"migrations of {database}",
                    "migrations",
                    _check_migrations(database, mongo.database),
                    deadline,
                    StoreError,
                    minor=True,
                ),
            )
            findings += chain.from_iterable(more)
        return findings
    finally:
        await mongo.close()


async def check_members(subject: str, mongo: Mongo) -> list[Finding]:
    """Check the clock, the primary and the members of the replica set."""
    before = datetime.now(UTC)
    hello = await mongo.database.command("hello")
    differs = clock_skew_seconds(before, hello["localTime"].replace(tzinfo=UTC), datetime.now(UTC))
    if differs > MAX_SKEW_SECONDS:
        return [build_finding(f"{subject} clock", f"differs by {differs:.1f} s", "", "clock")]
    primary, expected = hello.get("primary", ""), len(hello.get("hosts", []))
    if not primary:
        return [build_finding(subject, "no member is primary", "", "stores")]
    found_members = await _count_members(mongo, expected)
    wrong = f"{found_members} of {expected} members answer" if found_members < expected else ""
    right = f"replica set {hello.get('setName')}, {expected} members, primary {primary}"
    return [build_finding(subject, wrong, right, "stores", minor=True)]


async def _count_members(mongo: Mongo, expected: int) -> int:
    """Return how many of the `expected` members the driver finds within a second."""
    for _ in range(MAX_MEMBER_POLLS):
        if len(mongo.client.nodes) >= expected:
            break
        await asyncio.sleep(0.05)
    return len(mongo.client.nodes)


def clock_skew_seconds(before: datetime, theirs: datetime, after: datetime) -> float:
    """Return the minimum seconds by which another clock differs from ours.

    `before` and `after` are the times of request and response on our clock.
    """
    return max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)


async def _check_writes(subject: str, database: Database) -> list[Finding]:
    lease = Lease(database, "doctor")
    acquired = await lease.acquire()
    await lease.release()
    busy = "" if acquired else "; another doctor is running"
    return [build_finding(f"{subject} writes", "", f"acknowledged by a majority{busy}", "stores")]


async def _check_disk(database: Database) -> list[Finding]:
    used, size = await read_disk(database)
    text = f"{used / _GB:.1f} of {size / _GB:.1f} GB used"
    return [
        build_finding(
            "mongo disk",
            text if used > NEARLY_FULL_SHARE * size else "",
            text,
            "thingwaydiskfilling",
        )
    ]


async def _check_migrations(name: str, database: Database) -> list[Finding]:
    subject = f"migrations of {name}"
    if await database[MIGRATIONS_COLLECTION].find_one({"_id": RESTORING_ID}) is not None:
        text = "a restore is in progress, or was interrupted"
        return [build_finding(subject, text, "", "migrations")]
    # Imports the code of all services, so the other checks must not wait for it.
    by_database: Mapping[str, Sequence[Migration]] = await asyncio.to_thread(
        resolve_name, "deploy.platform.migrations:MIGRATIONS_BY_DATABASE"
    )
    migrations = by_database.get(name, ())
    missing = await list_pending_migrations(database, migrations, contract=False)
    wrong = ", ".join(f"{migration.number} ({migration.title})" for migration in missing)
    text = f"missing: {wrong}" if wrong else ""
    return [build_finding(subject, text, f"{len(migrations)} known, none due", "migrations")]


async def check_redis(url: str, deadline: float) -> list[Finding]:
    """Check Redis as the user of a service."""
    return await run_check(
        "redis", "stores", _check_redis(url), deadline, RedisError, OSError, ValueError
    )


async def _check_redis(url: str) -> list[Finding]:
    async with connect_redis(url) as redis:
        await redis.ping()
        try:
            await redis.set(_PROBE_KEY, "1", ex=5)
        except NoPermissionError:
            return [build_finding("redis", "", "answers; this user can only read", "stores")]
        return [build_finding("redis", "", "answers and accepts writes", "stores")]
