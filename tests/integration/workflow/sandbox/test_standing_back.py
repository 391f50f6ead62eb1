"""Code that computes gets the processor that nobody else wants."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from libs.common.sandbox.confine import LINUX, NICENESS
from services.workflow.sandbox.limits import JAVASCRIPT_REQUEST, CodeLimits
from services.workflow.sandbox.scripts import WorkerProcesses

GROUPED = Path("/proc/self/autogroup").exists()


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _niceness(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])


def _session_niceness(pid: int) -> int:
    return int(Path(f"/proc/{pid}/autogroup").read_text().rpartition(" ")[2])


async def _until_idle(pid: int) -> None:
    while os.sched_getscheduler(pid) != os.SCHED_IDLE:
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not LINUX, reason="Linux has idle time")
async def test_code_that_computes_for_long_gets_idle_time() -> None:
    """After a moment its processor counts as free for everybody else."""
    async with WorkerProcesses(1, CodeLimits()) as processes:
        spinning = asyncio.ensure_future(
            processes.request(JAVASCRIPT_REQUEST + b'["for (;;) {}", [], []]', 5.0)
        )
        while not processes._alive:
            await asyncio.sleep(0.01)
        (worker,) = [process.pid for process in processes._alive]
        while not _children(worker):
            await asyncio.sleep(0.01)
        async with asyncio.timeout(4):
            await _until_idle(_children(worker)[0])
        spinning.cancel()


async def _of_a_child(worker: int) -> int:
    """Of the child that waits for the next run; the one of the last run may just be ending."""
    while True:
        for child in _children(worker):
            with contextlib.suppress(OSError):
                return _niceness(child)
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not LINUX, reason="Linux tells how nice a process is")
async def test_workers_and_their_runs_stand_back() -> None:
    """In their session, and with their session where sessions share the processor."""
    async with WorkerProcesses(1, CodeLimits()) as processes:
        await processes.request(JAVASCRIPT_REQUEST + b'["return 1", [], []]', 1.0)
        (worker,) = [process.pid for process in processes._alive]
        assert await _of_a_child(worker) == NICENESS == _niceness(worker)
        if GROUPED:
            assert _session_niceness(worker) == NICENESS


async def test_workers_start_when_code_needs_them() -> None:
    """A service without code in its flows has no such process."""
    async with WorkerProcesses(2, CodeLimits()) as processes:
        assert not processes._alive
        await processes.request(JAVASCRIPT_REQUEST + b'["return 1", [], []]', 1.0)
        assert len(processes._alive) == 1
