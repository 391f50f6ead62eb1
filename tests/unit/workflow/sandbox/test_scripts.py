"""Workers for code start when runs need them."""

import asyncio
from unittest.mock import Mock

import pytest

from services.workflow.sandbox import scripts
from services.workflow.sandbox.limits import CodeLimits
from services.workflow.sandbox.scripts import WorkerProcesses


async def test_a_worker_starts_only_while_the_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consecutive runs use one worker, and concurrent ones several."""
    started: list[object] = []
    answered = asyncio.Event()
    answered.set()

    async def start(*_: object, **__: object) -> object:
        started.append(Mock(returncode=None))
        return started[-1]

    async def answer(*_: object) -> bytes:
        await answered.wait()
        return b"R1"

    monkeypatch.setattr(scripts, "start_worker", start)
    monkeypatch.setattr(scripts, "send_request", answer)
    workers = WorkerProcesses(3, CodeLimits())
    for _ in range(4):
        assert await workers.run_javascript("1", {}, 1.0) == 1
    assert len(started) == 1
    answered.clear()
    runs = [asyncio.ensure_future(workers.run_cel("1", {}, 1.0)) for _ in range(2)]
    await asyncio.sleep(0)
    answered.set()
    assert await asyncio.gather(*runs) == [1, 1]
    assert len(started) == 2
