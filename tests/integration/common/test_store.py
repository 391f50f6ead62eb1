"""Leases, migrations and ids, on a real MongoDB."""

import asyncio
import random
import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pymongo.asynchronous.command_cursor import AsyncCommandCursor

from libs.common.store import migrations
from libs.common.store.ids import IdAllocator
from libs.common.store.lease import Leader, Lease
from libs.common.store.migrations import RESTORING_ID, DatabaseTooNew, Migration, migrate
from libs.common.store.mongo import (
    LARGEST_BATCH,
    MeanRowSize,
    Mongo,
    Session,
    StoreUnavailable,
    build_page_stages,
    find_page,
    list_ids_in_turns,
    read_page,
    read_rows,
)
from libs.common.version import VERSION


async def test_a_lease_has_one_holder(mongo: Mongo):
    """One of many gets it, may renew it, and releases it for the next."""
    leases = [Lease(mongo.database, "job") for _ in range(8)]
    held = await asyncio.gather(*(lease.acquire() for lease in leases))
    assert sum(held) == 1
    holder = leases[held.index(True)]
    assert await holder.acquire()
    other = leases[held.index(False)]
    await other.release()
    assert not await other.acquire()
    await holder.release()
    assert await other.acquire()
    assert not await holder.acquire()


async def test_a_lease_that_nobody_renews_ends(mongo: Mongo):
    """When its holder has died, the lease goes to somebody else by itself."""
    assert await Lease(mongo.database, "job", life=0.2).acquire()
    other = Lease(mongo.database, "job")
    async with asyncio.timeout(30):
        while not await other.acquire():
            await asyncio.sleep(0.02)


async def test_documents_of_a_tenant_wait_behind_no_others(mongo: Mongo):
    """The first of each tenant is returned first, then the second of each."""
    rows = [("busy", at) for at in range(50)] + [("other", at) for at in (60, 70, 80)]
    await mongo.database["due"].insert_many(
        {"_id": f"{tenant} {at}", "tenant": tenant, "at": at} for tenant, at in rows
    )
    ids = await list_ids_in_turns(mongo.database["due"], {"at": {"$lt": 80}}, "at", 5)
    assert ids == ["busy 0", "other 60", "busy 1", "other 70", "busy 2"]


async def test_a_page_comes_with_the_number_of_all_that_match(mongo: Mongo):
    """Pages have an order, and a limit of 0 is the whole list."""
    collection = mongo.database["pages"]
    await collection.insert_many([{"_id": n, "even": n % 2 == 0} for n in range(10)])

    found, total = await find_page(collection, {"even": True}, [("_id", -1)], 1, 2, {"_id": 1})
    whole, _ = await find_page(collection, {"even": True}, [("_id", 1)], 0, 0)

    assert (found, total) == ([{"_id": 6}, {"_id": 4}], 5)
    assert [one["_id"] for one in whole] == [0, 2, 4, 6, 8]


async def test_rows_are_read_in_batches_of_about_so_many_bytes(mongo: Mongo):
    """Batches of large documents are small, also where larger ones follow small ones."""
    rows = mongo.direct["rows"]
    await rows.insert_many(
        {"_id": at, "x": "x" * 10 if at < 500 else "x" * 10_000} for at in range(800)
    )
    sizes: list[int] = []
    honest = AsyncCommandCursor.batch_size

    def batch_size(cursor: Any, size: int) -> Any:
        sizes.append(size)
        return honest(cursor, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncCommandCursor, "batch_size", batch_size)
        stages = build_page_stages({"_id": {"$gt": 9}}, [("_id", 1)], 10, 750)
        found = [row["_id"] async for row in read_rows(rows, stages, size=100_000)]
    assert found == list(range(20, 770))
    assert max(sizes[:400]) == LARGEST_BATCH
    assert set(sizes[-100:]) <= {9, 10}


async def test_large_documents_are_held_one_or_two_at_a_time(mongo: Mongo):
    """Forty of 1 MB are never in memory together."""
    rows = mongo.direct["large"]
    for at in range(40):
        await rows.insert_one({"_id": at, "x": "x" * 1_000_000})
    tracemalloc.start()
    try:
        stages = build_page_stages({}, [("_id", 1)])
        found = [len(row["x"]) async for row in read_rows(rows, stages, first=1)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [1_000_000] * 40
    assert peak < 12 * 1_000_000


class Jobs:
    """Counts who works at the same time."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def work(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.now -= 1
            self.ended.set()


async def test_a_leader_works_alone_and_hands_over(mongo: Mongo):
    """The job runs in one replica at a time, and in another one when that one leaves."""
    jobs = [Jobs() for _ in range(3)]
    together = Jobs()

    async def work(own: Jobs) -> None:
        own.begun.set()
        await together.work()

    tasks = [
        asyncio.ensure_future(
            Leader(mongo.database, "jobs", {"job": partial(work, own)}, life=0.4).run()
        )
        for own in jobs
    ]
    async with asyncio.timeout(20):
        for rest in (2, 1, 0):
            await together.begun.wait()
            together.begun.clear()
            leader = next(n for n, own in enumerate(jobs) if own.begun.is_set())
            jobs[leader].begun.clear()
            tasks[leader].cancel()
            await asyncio.wait([tasks[leader]])
            assert sum(not task.done() for task in tasks) == rest
    assert (together.most, together.now) == (1, 0)


@pytest.mark.parametrize("silent", [False, True], ids=["error", "silence"])
async def test_a_leader_stops_before_its_lease_can_end(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, *, silent: bool
):
    """A database that fails or hangs ends the job while nobody else can hold the lease."""
    jobs, life = Jobs(), 2.0
    leader = Leader(mongo.database, "jobs", {"job": jobs.work}, life=life)
    task = asyncio.ensure_future(leader.run())
    await jobs.begun.wait()
    last = asyncio.get_running_loop().time()

    async def away(_: Lease) -> bool:
        if silent:
            await asyncio.Event().wait()
        raise StoreUnavailable("away")

    monkeypatch.setattr(Lease, "acquire", away)
    async with asyncio.timeout(life):
        await jobs.ended.wait()
    assert asyncio.get_running_loop().time() - last < life
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_job_that_fails_is_started_again(mongo: Mongo, monkeypatch: pytest.MonkeyPatch):
    """An error of one job is not the end of it, and does not disturb another one."""
    runs, other = asyncio.Queue[None](), Jobs()

    async def job() -> None:
        runs.put_nowait(None)
        raise ValueError("oops")

    async def acquire(_: Lease) -> bool:
        return True

    monkeypatch.setattr(Lease, "acquire", acquire)
    jobs = {"job": job, "other": other.work}
    task = asyncio.ensure_future(Leader(mongo.database, "jobs", jobs, life=0.1).run())
    async with asyncio.timeout(30):
        for _ in range(3):
            await runs.get()
    assert (other.now, other.ended.is_set()) == (1, False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert other.now == 0


def counting(ran: list[int], fail: set[int]) -> list[Migration]:
    def step(number: int) -> Migration:
        async def run(database: Any) -> None:
            ran.append(number)
            await asyncio.sleep(0.02)
            await database["things"].insert_one({"_id": len(ran)})
            if number in fail:
                fail.discard(number)
                raise RuntimeError("died")

        return Migration(number, f"step {number}", run)

    return [step(number) for number in (1, 2, 3)]


async def test_migrations_run_once_across_starters(mongo: Mongo):
    """Many processes that start at once: each step is done once, and all wait for it."""
    ran: list[int] = []
    steps = counting(ran, set())
    await asyncio.gather(*(migrate(mongo.database, steps) for _ in range(6)))
    assert ran == [1, 2, 3]
    assert await mongo.database["migrations"].count_documents({}) == 3
    await migrate(mongo.database, steps)
    assert ran == [1, 2, 3]


async def test_a_process_that_waited_for_the_lease_checks_again(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
):
    """It does not repeat the migrations that another process has run meanwhile."""
    ran: list[int] = []
    steps = counting(ran, set())
    looked, done = asyncio.Event(), asyncio.Event()
    honest = Lease.acquire

    async def acquire(lease: Lease) -> bool:
        if not looked.is_set():
            looked.set()
            await done.wait()
        return await honest(lease)

    monkeypatch.setattr(Lease, "acquire", acquire)
    late = asyncio.ensure_future(migrate(mongo.database, steps))
    await looked.wait()
    await migrate(mongo.database, steps)
    done.set()
    await late
    assert ran == [1, 2, 3]


async def test_an_interrupted_migration_is_continued_by_the_next_process(mongo: Mongo):
    """Finished steps are not repeated; the interrupted step is."""
    ran: list[int] = []
    steps = counting(ran, {2})
    with pytest.raises(RuntimeError):
        await migrate(mongo.database, steps)
    await migrate(mongo.database, steps)
    assert ran == [1, 2, 2, 3]


async def test_contracting_migrations_wait_for_the_operator(mongo: Mongo):
    """A start does not run them, so that the previous version can be started again."""
    ran: list[int] = []
    first, last = counting(ran, set())[0], counting(ran, set())[2]
    await migrate(mongo.database, [first])
    steps = [first, replace(counting(ran, set())[1], contract=True), last]
    await migrate(mongo.database, steps)
    assert ran == [1, 3]
    await migrate(mongo.database, steps, contract=True)
    await migrate(mongo.database, steps, contract=True)
    assert ran == [1, 3, 2]


async def test_an_older_version_refuses_a_database_that_a_newer_one_contracted(mongo: Mongo):
    """Steps that only expand do not matter; the message says what to do."""
    first, second, third = counting([], set())
    await migrate(mongo.database, [first])
    newer = [first, second, replace(third, contract=True)]
    await migrate(mongo.database, newer)
    await migrate(mongo.database, [first])
    await migrate(mongo.database, newer, contract=True)
    with pytest.raises(DatabaseTooNew, match=f"start version {VERSION} or a newer one, or restore"):
        await migrate(mongo.database, [first])
    await migrate(mongo.database, newer)


async def test_a_new_database_has_no_older_version_to_wait_for(mongo: Mongo):
    """Everything runs at its first start, what contracts after all else."""
    ran: list[int] = []
    steps = [replace(one, contract=one.number == 1) for one in counting(ran, set())]
    await migrate(mongo.database, steps)
    assert ran == [2, 3, 1]


async def test_a_start_waits_while_the_database_is_restored(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
):
    """Nobody migrates or serves what is half there."""
    ran: list[int] = []
    looked = asyncio.Event()

    async def pause(_: float) -> None:
        looked.set()
        await mongo.ping()

    monkeypatch.setattr(migrations, "_pause", pause)
    await mongo.database["migrations"].insert_one({"_id": RESTORING_ID})
    start = asyncio.ensure_future(migrate(mongo.database, counting(ran, set())))
    await looked.wait()
    assert ran == []
    await mongo.database["migrations"].delete_one({"_id": RESTORING_ID})
    await start
    assert ran == [1, 2, 3]


async def test_ids_are_unique_across_allocators(mongo: Mongo):
    """Replicas that allocate at once never give an id twice."""
    allocators = [IdAllocator(mongo.database, "things", block=7) for _ in range(4)]
    ids = await asyncio.gather(
        *(allocator.allocate() for allocator in allocators for _ in range(50))
    )
    assert len(set(ids)) == 200
    assert min(ids) >= 1_000_000


async def test_a_transaction_that_meets_a_lock_pauses_longer_and_longer(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
):
    """It succeeds once the lock is gone, and keeps no processor busy until then."""
    things = mongo.database["things"]
    await things.insert_one({"_id": 1})
    longest: list[float] = []
    enough = asyncio.Event()

    def no_pause(_: float, most: float) -> float:
        longest.append(most)
        if len(longest) > 10:
            enough.set()
        return 0.0

    async def work(session: Session) -> None:
        await things.update_one({"_id": 1}, {"$set": {"by": "second"}}, session=session)

    monkeypatch.setattr(random, "uniform", no_pause)
    async with await mongo.client.start_session() as session, session.start_transaction():
        await things.update_one({"_id": 1}, {"$set": {"by": "first"}}, session=session)
        second = asyncio.ensure_future(mongo.transaction(work))
        async with asyncio.timeout(30):
            await enough.wait()
    await second
    assert longest[:10] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5]
    assert await things.find_one() == {"_id": 1, "by": "second"}


async def test_a_page_is_read_whole_only_if_its_rows_were_small(mongo: Mongo):
    """The first page is read in batches, as is one after large rows."""
    rows, known = mongo.direct["page"], MeanRowSize()
    await rows.insert_many({"_id": at, "x": "x" * (10 if at < 50 else 10_000)} for at in range(90))
    lists: list[int] = []
    for start in (0, 10, 50, 50, 60):
        stages = build_page_stages({"_id": {"$gte": start}}, [("_id", 1)], limit=30)
        found = [batch async for batch in read_page(rows, stages, 30, known)]
        assert [row["_id"] for batch in found for row in batch] == list(range(start, start + 30))
        lists.append(len(found))
    assert lists == [30, 1, 1, 30, 30]
