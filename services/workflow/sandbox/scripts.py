"""JavaScript (the body of a function, which gives its value with `return`) and conditions in CEL.

Both run in worker processes of ours.
"""

import asyncio
import json
import logging
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from libs.common.sandbox.workers import ask_worker, kill_worker, start_worker, wait_killed
from services.workflow.sandbox.limits import CodeFailed, Limits, plain
from services.workflow.sandbox.worker import CONDITION, GRACE, SCRIPT, SECONDS

log = logging.getLogger(__name__)

_WORKER = "services.workflow.sandbox.worker"
LATE = 2.0
"""Seconds beyond a run's own after which its worker is taken for lost: the kernel should have
ended the run long before."""


class Processes:
    """A fixed number of workers; `Sandbox` has no more runs at a time.

    All that runs in them raises `CodeFailed`.
    """

    def __init__(self, count: int, limits: Limits) -> None:
        self._count = count
        self._limits = limits
        self._idle: deque[Process | None] = deque()
        self._alive: set[Process] = set()

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self._idle.append(await self._start())
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in list(self._alive):
            await self._end(process)

    async def javascript(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of a piece of JavaScript."""
        given = [code, list(arguments), list(arguments.values())]
        content = await self._evaluate(SCRIPT, given, "arguments and code", seconds)
        try:
            return plain(json.loads(content), self._limits.output)
        except (ValueError, RecursionError) as error:
            raise CodeFailed("its result is no JSON") from error

    async def cel(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of a condition that may take long."""
        given = [code, arguments]
        return json.loads(await self._evaluate(CONDITION, given, "values and text", seconds))

    async def _evaluate(self, kind: bytes, given: Any, what: str, seconds: float) -> bytes:
        request = json.dumps(given).encode()
        if len(request) > self._limits.given:
            raise CodeFailed(f"gets more than {self._limits.given} bytes of {what}")
        answer = await self.ask(kind + request, seconds)
        if answer[:1] != b"R":
            raise CodeFailed(answer[1:].decode(errors="replace"))
        return answer[1:]

    async def ask(self, request: bytes, seconds: float) -> bytes:
        """The answer of a worker; raise `CodeFailed` when there is none."""
        process = self._idle.popleft()
        spare: Process | None = None
        try:
            if process is None or process.returncode is not None:
                process = await self._start()
            async with asyncio.timeout(seconds + GRACE + LATE):
                answer = await ask_worker(process, SECONDS.pack(seconds) + request)
            spare = process
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            log.warning("a sandbox worker was lost: %s", type(error).__name__)
            raise CodeFailed("was ended with its process") from error
        finally:
            if spare is None and process is not None:
                kill_worker(process)
                self._alive.discard(process)
            self._idle.append(spare)
        return answer

    async def _start(self) -> Process:
        limits = self._limits
        process = await start_worker(_WORKER, limits.memory, limits.output, largest=limits.output)
        self._alive.add(process)
        return process

    async def _end(self, process: Process) -> None:
        self._alive.discard(process)
        kill_worker(process)
        await wait_killed(process)
