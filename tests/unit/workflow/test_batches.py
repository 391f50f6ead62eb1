"""Many writes in one."""

import asyncio

from services.workflow import batches
from services.workflow.batches import WriteBatcher


async def test_large_entries_go_in_several_writes(monkeypatch):
    """One that is larger than a write may be goes by itself; small ones stay together."""
    monkeypatch.setattr(batches, "MAX_CHARACTERS_PER_WRITE", 10)
    monkeypatch.setattr(batches, "WRITERS_PER_TENANT", 1)
    written: list[list[str]] = []

    async def write(entries):
        await asyncio.sleep(0)
        written.append(list(entries))
        return [len(entry) for entry in entries]

    sizes = [3, 3, 3, 9, 20, 1, 1]
    batches_of = WriteBatcher("test", write, lambda _: "t", len)
    found = await batches_of.write_all(["x" * size for size in sizes])
    assert found == sizes
    assert [list(map(len, one)) for one in written] == [[3, 3, 3], [9], [20], [1, 1]]


async def test_a_tenant_with_many_entries_does_not_delay_another_one():
    """A write of the other one begins at once, and has none of the many."""
    written: list[list[str]] = []
    store = asyncio.Event()

    async def write(entries):
        written.append([*entries])
        await store.wait()
        return entries

    several = WriteBatcher("test", write, lambda entry: entry[0])
    many = asyncio.ensure_future(several.write_all(f"a{number}" for number in range(2_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    other = asyncio.ensure_future(several.write("b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [(len(one), one[0]) for one in written] == [(200, "a0"), (200, "a200"), (1, "b")]
    store.set()
    assert (len(await many), await other) == (2_000, "b")


async def test_few_entries_of_many_tenants_go_in_one_write():
    """Entries that arrive while all writers are busy share one write."""
    written: list[list[int]] = []
    store = asyncio.Event()

    async def write(entries):
        written.append([*entries])
        await store.wait()
        return entries

    several = WriteBatcher("test", write, str)
    found = asyncio.ensure_future(several.write_all(range(100)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.set()
    assert await found == [*range(100)]
    assert sorted(map(len, written)) == [100]


async def test_lingering_entries_share_a_write(monkeypatch):
    """A full write does not linger."""
    monkeypatch.setattr(batches, "MAX_ENTRIES_PER_WRITE", 3)
    written: list[list[int]] = []

    async def write(entries):
        written.append([*entries])
        return entries

    several = WriteBatcher("test", write, lambda _: "t", linger=0.05)
    first = asyncio.ensure_future(several.write(0))
    await asyncio.sleep(0)
    assert await several.write(1) == 1
    assert await first == 0
    assert written == [[0, 1]]
    full = WriteBatcher("test", write, lambda _: "t", linger=60.0)
    assert await full.write_all([2, 3, 4]) == [2, 3, 4]
