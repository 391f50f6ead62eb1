"""Many writes in one."""

import asyncio

from services.workflow import batches
from services.workflow.batches import Batches


async def test_large_entries_go_in_several_writes(monkeypatch):
    """One that is larger than a write may be goes by itself; small ones stay together."""
    monkeypatch.setattr(batches, "LARGEST", 10)
    monkeypatch.setattr(batches, "AT_ONCE", 1)
    written: list[list[str]] = []

    async def write(entries):
        await asyncio.sleep(0)
        written.append(list(entries))
        return [len(entry) for entry in entries]

    sizes = [3, 3, 3, 9, 20, 1, 1]
    found = await Batches(write, len).put_all(["x" * size for size in sizes])
    assert found == sizes
    assert [list(map(len, one)) for one in written] == [[3, 3, 3], [9], [20], [1, 1]]
