"""JavaScript (the body of a function with `return`) and CEL, in worker processes."""

import asyncio
import json
import logging
from asyncio.subprocess import Process
from collections.abc import Mapping
from typing import Any, Self

from libs.common.sandbox.workers import kill_worker, send_request, start_worker, wait_until_killed
from services.workflow.sandbox.limits import (
    CEL_REQUEST,
    ELAPSED_GRACE_SECONDS,
    JAVASCRIPT_REQUEST,
    TIME_LIMIT_HEADER,
    CodeFailed,
    CodeLimits,
    to_json_value,
)

log = logging.getLogger(__name__)

_WORKER_MODULE = "services.workflow.sandbox.worker"
WORKER_GRACE_SECONDS = 2.0
"""Seconds after the limit of elapsed time of a run when its worker is considered lost. The worker
should have ended the run at that limit."""
START_SECONDS = 30.0
"""Additional seconds for a run whose worker has yet to start."""


class WorkerProcesses:
    """Up to `count` workers for JavaScript and CEL, which start when runs need them.

    `Sandbox` limits concurrent runs. The methods that run code raise `CodeFailed`.
    """

    def __init__(self, count: int, limits: CodeLimits) -> None:
        self._limits = limits
        self._idle: list[Process | None] = [None] * count
        """Workers that wait for a run, the last used at the end; None before they start."""
        self._alive: set[Process] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in list(self._alive):
            await self._end_worker(process)

    async def run_javascript(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """Return the value of JavaScript code."""
        given = [code, list(arguments), list(arguments.values())]
        content = await self._encode_and_request(
            JAVASCRIPT_REQUEST, given, "arguments and code", seconds
        )
        try:
            return to_json_value(json.loads(content), self._limits.output_bytes)
        except (ValueError, RecursionError) as error:
            raise CodeFailed("the result is not JSON") from error

    async def run_cel(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """Return the value of a condition that may be slow."""
        content = [code, arguments]
        return json.loads(
            await self._encode_and_request(CEL_REQUEST, content, "values and text", seconds)
        )

    async def _encode_and_request(
        self, kind: bytes, content: Any, what: str, seconds: float
    ) -> bytes:
        request = json.dumps(content).encode()
        if len(request) > self._limits.input_bytes:
            raise CodeFailed(f"{what} must have at most {self._limits.input_bytes} bytes")
        answer = await self.request(kind + request, seconds)
        if answer[:1] != b"R":
            raise CodeFailed(answer[1:].decode(errors="replace"))
        return answer[1:]

    async def request(self, request: bytes, seconds: float) -> bytes:
        """Send a request to a worker and return the response.

        Raises `CodeFailed` if the worker does not respond in time, and replaces the worker.
        """
        process = self._idle.pop()
        spare: Process | None = None
        limit = seconds + ELAPSED_GRACE_SECONDS + WORKER_GRACE_SECONDS
        try:
            if process is None or process.returncode is not None:
                process = await self._start_worker()
                limit += START_SECONDS
            async with asyncio.timeout(limit):
                answer = await send_request(process, TIME_LIMIT_HEADER.pack(seconds) + request)
            spare = process
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            log.warning(
                "a sandbox worker did not respond and is replaced: %s", type(error).__name__
            )
            raise CodeFailed("its process ended") from error
        finally:
            if spare is None and process is not None:
                kill_worker(process)
                self._alive.discard(process)
            self._idle.append(spare)
        return answer

    async def _start_worker(self) -> Process:
        limits = self._limits
        process = await start_worker(
            _WORKER_MODULE, limits.memory_bytes, limits.output_bytes, largest=limits.output_bytes
        )
        self._alive.add(process)
        return process

    async def _end_worker(self, process: Process) -> None:
        self._alive.discard(process)
        kill_worker(process)
        await wait_until_killed(process)
