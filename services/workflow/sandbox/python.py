"""Python code: `def main()`, or statements ending with `return` or an expression.

The interpreter is Monty, which has no access to files, networks or the environment. It runs in
processes of its own pool, for which the threads here only wait. (Its asyncio interface is not used:
as of 1.4.0 it cannot be cancelled while code computes, and may abort an interpreter that ends.)
The first run loads the library and creates the pool: without Python code, a process needs 4 MiB
less.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from services.workflow.sandbox.limits import CodeFailed, CodeLimits, to_json_value

if TYPE_CHECKING:
    import pydantic_monty as monty

_DEFINES_MAIN = re.compile(r"^def\s+main\s*\(\s*\)", re.MULTILINE)
_OS_POLICY: "monty.OSPolicy" = {"sleep": "zero"}
KILL_GRACE_SECONDS = 0.25
"""Seconds between the time limit of a run and the end of its worker, which is then killed."""
MAX_WORKER_WAIT_SECONDS = 30.0
"""Seconds that a thread waits for a worker. The pool has as many workers as threads."""


class PythonRunner:
    """Runs Python in the worker processes of Monty."""

    def __init__(self, processes: int, limits: CodeLimits) -> None:
        self._processes, self._limits = processes, limits
        self._threads = ThreadPoolExecutor(processes, "monty")
        self._pool: monty.Monty | None = None
        self._creating = Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stop)

    async def run(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """Return the value of `code`; raise `CodeFailed`."""
        size = len(code) + len(json.dumps(arguments))
        if size > self._limits.input_bytes:
            raise CodeFailed(
                f"arguments and code must have at most {self._limits.input_bytes} bytes"
            )
        loop, inputs = asyncio.get_running_loop(), dict(arguments)
        running = loop.run_in_executor(self._threads, self._run, code, inputs, seconds)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])  # a thread cannot be cancelled and stays busy
            running.exception()
            raise

    def _run(self, code: str, arguments: dict[str, Any], seconds: float) -> Any:
        import pydantic_monty as monty  # noqa: PLC0415 - only processes that run Python load it

        if _DEFINES_MAIN.search(code):
            code += "\nmain()"
        try:
            with self._get_pool().checkout(
                limits=self._resource_limits(seconds), os_policy=_OS_POLICY
            ) as session:
                printed = monty.CollectString(self._limits.printed_bytes)
                value = session.feed_run(code, inputs=arguments, print_callback=printed)
        except monty.MontyError as error:
            raise CodeFailed(_describe_error(error, self._limits.printed_bytes)) from error
        except TimeoutError as error:
            raise CodeFailed("no process was available") from error
        return to_json_value(value, self._limits.output_bytes)

    def _get_pool(self) -> "monty.Monty":
        """Return the pool, which the first run creates."""
        import pydantic_monty as monty  # noqa: PLC0415 - as above

        with self._creating:
            if self._pool is None:
                pool = monty.Monty(
                    min_processes=0,  # they start when code needs them
                    max_processes=self._processes,
                    checkout_timeout=MAX_WORKER_WAIT_SECONDS,
                    request_timeout=self._limits.seconds + KILL_GRACE_SECONDS,
                    feed_duration_limit_grace=KILL_GRACE_SECONDS,
                )
                self._pool = pool.__enter__()
            return self._pool

    def _resource_limits(self, seconds: float) -> "monty.ResourceLimits":
        return {
            "max_feed_duration_secs": seconds,
            "max_memory": self._limits.memory_bytes,
            "max_recursion_depth": self._limits.call_depth,
        }

    def _stop(self) -> None:
        self._threads.shutdown()
        if self._pool is not None:
            self._pool.__exit__(None, None, None)


def _describe_error(error: "monty.MontyError", printed_bytes: int) -> str:
    import pydantic_monty as monty  # noqa: PLC0415 - as above

    if isinstance(error, monty.MontyCrashedError):
        return "took too long" if error.timed_out else "its process ended"
    if not isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return str(error)
    text = error.display("type-msg")
    if text.startswith("TimeoutError: feed time limit"):
        return "took too long"
    if text.startswith("MemoryError: memory limit"):
        prints_too_much = text.endswith(f"> {printed_bytes} bytes")
        return "prints too much" if prints_too_much else "needs too much memory"
    frames = error.traceback()
    return f"{text} (line {frames[-1].line})" if frames else text
