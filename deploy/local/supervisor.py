"""Supervision of child processes: restart after a crash, ordered shutdown."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

from deploy.local import fork_server
from deploy.local.fork_server import ForkServer
from deploy.local.process import (
    ChildProcess,
    ProcessSpec,
    describe_exit,
    signal_group,
    spawn,
    terminate,
)
from deploy.platform.errors import Exit, LauncherError
from libs.common.jobs import wait_for_event

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""Uptime after which the next pause is the shortest again."""


class RestartBackoff:
    """The pause before the next start, doubled by each early exit up to a limit."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE_SECONDS

    def next_pause_seconds(self, uptime: float) -> float:
        """Return the seconds to wait after an uptime of `uptime` seconds."""
        if uptime >= STEADY_SECONDS:
            self._next = FIRST_PAUSE_SECONDS
        pause = self._next
        self._next = min(pause * 2, MAX_PAUSE_SECONDS)
        return pause


class SupervisedProcess:
    """A supervised process that `run` starts again until `stop` is called."""

    def __init__(
        self,
        spec: ProcessSpec,
        log: Path,
        start: Callable[[ProcessSpec, Path], Awaitable[ChildProcess]],
    ) -> None:
        self.spec = spec
        self.log = log
        self.process: ChildProcess | None = None
        self.exits = 0
        self._start = start
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Return the process id while the process runs, else None."""
        process = self.process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def exit_fault(self) -> str | None:
        """Return the explanation of the last exit code; None if it has none."""
        code = self.process.returncode if self.process is not None else None
        return None if code is None else self.spec.faults.get(code)

    def stop(self) -> None:
        """Make `run` end the process and return."""
        self._stopping.set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process if it runs."""
        if self.pid is not None:
            signal_group(self.pid, number)

    async def run(self, print_line: Callable[[str], None], changed: Callable[[], None]) -> None:
        """Keep the process running until `stop` is called."""
        backoff = RestartBackoff()
        while not self._stopping.is_set():
            started = time.monotonic()
            fault = await self._run_once(changed)
            if fault is None:
                return
            self.exits += 1
            pause = backoff.next_pause_seconds(time.monotonic() - started)
            print_line(f"{self.spec.name} {fault}; restarting it in {pause:.1f} s (see {self.log})")
            changed()
            await wait_for_event(self._stopping, pause)

    async def _run_once(self, changed: Callable[[], None]) -> str | None:
        """Run the process once; return how it ended, or None after a stop."""
        try:
            self.process = await self._start(self.spec, self.log)
        except OSError as error:
            return f"could not be started ({error})"
        changed()
        ended = asyncio.create_task(self.process.wait())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stopping.is_set():
            await terminate(self.process, self.spec.grace)
            return None
        return describe_exit(await ended)


MAX_LOG_BYTES = 20 * 1024**2
"""Bytes of a log above which its content moves to `NAME.log.1`."""
LOG_CHECK_SECONDS = 10.0


async def limit_logs(
    logs: Path, largest: int = MAX_LOG_BYTES, period: float = LOG_CHECK_SECONDS
) -> None:
    """Keep the logs in a directory small, for ever.

    A large log is copied to `NAME.log.1` and emptied, because its process keeps it open and appends
    to it. Lines that are written between the two steps are lost.
    """
    while True:
        await asyncio.to_thread(_move_large_logs, logs, largest)
        await asyncio.sleep(period)


def _move_large_logs(logs: Path, largest: int) -> None:
    for log in logs.glob("*.log"):
        if log.stat().st_size > largest:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


class Supervisor:
    """The child processes of a launcher.

    `print_line` prints to the terminal; `changed` is called when a pid changes. Children inherit
    the descriptors in `keep_open`. `fork_server` starts the children that it may run; it stops
    last.
    """

    def __init__(
        self,
        logs: Path,
        *,
        print_line: Callable[[str], None],
        changed: Callable[[], None] = lambda: None,
        keep_open: Collection[int] = (),
        fork_server: ForkServer | None = None,
    ) -> None:
        self.logs = logs
        self._print_line = print_line
        self._changed = changed
        self._keep_open = tuple(keep_open)
        self._fork_server = fork_server
        self._children: dict[str, SupervisedProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._logs: asyncio.Task[None] | None = None

    def start(self, spec: ProcessSpec) -> SupervisedProcess:
        """Start a child and keep it running; keep its previous log as `NAME.log.1`."""
        if self._logs is None:
            self._logs = asyncio.create_task(limit_logs(self.logs))
        log = self.logs / f"{spec.name}.log"
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        child = SupervisedProcess(spec, log, self._spawn)
        self._children[spec.name] = child
        task = asyncio.create_task(child.run(self._print_line, self._changed), name=spec.name)
        self._tasks[spec.name] = task
        return child

    def restart(self, name: str) -> None:
        """Terminate a child, which is then restarted as after a crash."""
        self.signal(name, signal.SIGTERM)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a child."""
        self._children[name].signal(number)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running children by name."""
        pids = {name: child.pid for name, child in self._children.items()}
        if self._fork_server is not None:
            pids[fork_server.PROCESS_NAME] = self._fork_server.pid
        return {name: pid for name, pid in pids.items() if pid is not None}

    async def stop(self) -> None:
        """Stop all children, the highest stage first."""
        if self._logs is not None:
            self._logs.cancel()
        stages = sorted({child.spec.stage for child in self._children.values()}, reverse=True)
        for stage in stages:
            names = [name for name, child in self._children.items() if child.spec.stage == stage]
            for name in names:
                self._children[name].stop()
            await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)
        self._children.clear()
        self._tasks.clear()
        if self._fork_server is not None:
            await self._fork_server.stop()

    async def _spawn(self, spec: ProcessSpec, log: Path) -> ChildProcess:
        if spec.forked and self._fork_server is not None:
            try:
                return await self._fork_server.fork(spec, log)
            except OSError as error:
                self._print_line(f"{error}; {spec.name} starts without it")
        return await spawn(spec, log, self._keep_open)


MAX_START_SECONDS = 180.0
"""Maximum seconds until a process is ready; a minute is usual on slow, busy processors."""
_MAX_EARLY_EXITS = 4
"""Number of exits before its readiness after which a child is reported as failed."""


async def wait_ready(child: SupervisedProcess, ready: Callable[[], Awaitable[None]]) -> None:
    """Wait until `ready` returns.

    Raises `LauncherError` (exit code 1) with the reason if the child keeps exiting, exits with a
    code in `faults`, or is not ready in time.
    """
    waiting = asyncio.ensure_future(ready())
    deadline = time.monotonic() + MAX_START_SECONDS
    try:
        while not (await asyncio.wait({waiting}, timeout=0.1))[0]:
            if child.exit_fault or child.exits >= _MAX_EARLY_EXITS or time.monotonic() > deadline:
                raise LauncherError(_explain_failure(child), Exit.FAILED)
        waiting.result()
    finally:
        waiting.cancel()


async def run_concurrently(steps: list[Coroutine[Any, Any, None]]) -> None:
    """Run all steps concurrently; if one fails, cancel the others and raise its error."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _explain_failure(child: SupervisedProcess) -> str:
    if child.exit_fault:
        return f"{child.spec.name}: {child.exit_fault} (see {child.log})"
    cause = "keeps exiting" if child.exits >= _MAX_EARLY_EXITS else "is not ready in time"
    return f"{child.spec.name} {cause}: {_last_line(child.log)} (see {child.log})"


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it wrote no log"
    return lines[-1][:300] if lines else "its log is empty"
