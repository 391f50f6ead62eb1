"""Wait for children to become ready, and say why one does not."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from deploy.local.supervisor import Child
from deploy.platform.errors import Exit, LauncherError

START_SECONDS = 180.0
"""For one process; several platforms that start at once on slow processors take a minute."""
_EARLY_DEATHS = 4
"""A child that died so often before it was ready will not get there."""


async def until_ready(child: Child, ready: Callable[[], Awaitable[None]]) -> None:
    """Wait until `ready` returns.

    Raises `LauncherError` (exit code 1) with the last line of the child's log when it
    keeps dying or is not ready in time.
    """
    waiting = asyncio.ensure_future(ready())
    deadline = time.monotonic() + START_SECONDS
    try:
        while not (await asyncio.wait({waiting}, timeout=0.1))[0]:
            if child.deaths >= _EARLY_DEATHS or time.monotonic() > deadline:
                raise LauncherError(_explain(child), Exit.FAILED)
        waiting.result()
    finally:
        waiting.cancel()


async def together(steps: list[Coroutine[Any, Any, None]]) -> None:
    """Run all steps at once; when one fails, end the others and raise its error."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _explain(child: Child) -> str:
    cause = "keeps ending" if child.deaths >= _EARLY_DEATHS else "is not ready in time"
    return f"{child.spec.name} {cause}: {_last_line(child.log)} (see {child.log})"


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it wrote no log"
    return lines[-1][:300] if lines else "its log is empty"
