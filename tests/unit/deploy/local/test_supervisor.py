"""Children are restarted, and none survives the launcher."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.fork_server import ForkServer
from deploy.local.process import ProcessSpec, inheritable_environment
from deploy.local.supervisor import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    STEADY_SECONDS,
    RestartBackoff,
    Supervisor,
    limit_logs,
    wait_ready,
)
from deploy.platform.errors import LauncherError

WAIT = 10.0
SLEEPER = "import sys, time; print('here', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def spec(name: str, code: str, *, stage: int = 0, grace: float = 5.0) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        argv=[sys.executable, "-c", code],
        stage=stage,
        environment=inheritable_environment(os.environ),
        grace=grace,
    )


class Watch:
    """A supervisor that wakes a test when it prints a line or a pid changes."""

    def __init__(self, logs: Path) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()
        self.supervisor = Supervisor(logs, print_line=self._print_line, changed=self._changed.set)

    def _print_line(self, line: str) -> None:
        self.lines.append(line)
        self._changed.set()

    async def until(self, condition) -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                await self._changed.wait()
                self._changed.clear()


@pytest.fixture
async def watch(tmp_path: Path):
    made = Watch(tmp_path)
    yield made
    await made.supervisor.stop()


def poll_for_text(path: Path, text: str) -> None:
    deadline = time.monotonic() + WAIT
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline, f"no {text!r} in {path}"
        time.sleep(0.01)


async def wait_for_text(path: Path, text: str) -> None:
    await asyncio.to_thread(poll_for_text, path, text)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_killed_child_is_restarted_with_a_message(watch: Watch) -> None:
    """The restarted child has another pid."""
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await watch.until(lambda: "sleeper" in watch.supervisor.pids())
    first = watch.supervisor.pids()["sleeper"]
    os.kill(first, signal.SIGKILL)
    await watch.until(lambda: watch.supervisor.pids().get("sleeper") not in (None, first))
    assert watch.lines[0].startswith("sleeper was ended by SIGKILL; restarting it in 0.2 s")


async def test_restart_terminates_and_starts_a_child(watch: Watch) -> None:
    """The child gets a SIGTERM and is then restarted as after a crash."""
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await watch.until(lambda: "sleeper" in watch.supervisor.pids())
    first = watch.supervisor.pids()["sleeper"]
    watch.supervisor.restart("sleeper")
    await watch.until(lambda: watch.supervisor.pids().get("sleeper") not in (None, first))
    assert watch.lines[0].startswith("sleeper was ended by SIGTERM; restarting it in 0.2 s")


async def test_a_child_has_no_pid_between_two_starts(watch: Watch) -> None:
    """No pid is reported while a child waits for its next start."""
    watch.supervisor.start(spec("brief", "raise SystemExit(3)"))
    await watch.until(lambda: watch.lines)
    assert watch.supervisor.pids() == {}
    assert "brief ended with exit code 3" in watch.lines[0]


async def test_an_exit_code_with_a_meaning_is_explained(watch: Watch) -> None:
    """The log of such a server is long and says the same in its own words."""
    brief = replace(spec("brief", "raise SystemExit(62)"), faults={62: "the data are too old"})
    child = watch.supervisor.start(brief)
    with pytest.raises(LauncherError, match="the data are too old"):
        await wait_ready(child, asyncio.Event().wait)


async def test_a_failed_start_is_repeated(watch: Watch) -> None:
    """A child that cannot be started is reported each time."""
    missing = ProcessSpec(name="none", argv=["/nonexistent"], stage=0, environment={})
    watch.supervisor.start(missing)
    await watch.until(lambda: len(watch.lines) == 2)
    assert "could not be started" in watch.lines[1]


async def test_a_child_starts_without_a_fork_server_that_fails(tmp_path: Path) -> None:
    """A broken fork server costs memory, not the platform."""
    lines: list[str] = []
    server = ForkServer(["no_such_module"], inheritable_environment(os.environ), tmp_path)
    supervisor = Supervisor(tmp_path, print_line=lines.append, fork_server=server)
    try:
        supervisor.start(replace(spec("sleeper", SLEEPER), forked=True))
        await wait_for_text(tmp_path / "sleeper.log", "here")
    finally:
        await supervisor.stop()
    assert lines[0].startswith("the fork server ended (see ")
    assert lines[0].endswith("; sleeper starts without it")


async def test_stop_kills_a_child_that_ignores_sigterm(watch: Watch, tmp_path: Path) -> None:
    """The child is killed after its grace period."""
    watch.supervisor.start(spec("stubborn", STUBBORN, grace=0.1))
    await wait_for_text(tmp_path / "stubborn.log", "here")
    pid = watch.supervisor.pids()["stubborn"]
    await watch.supervisor.stop()
    assert not is_alive(pid)


async def test_higher_stages_end_first(watch: Watch, tmp_path: Path) -> None:
    """Services end before their servers."""
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        "def bye(*_):\n"
        f"    open({str(order)!r}, 'a').write(sys.argv[1] + ' ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "print('here', flush=True)\n"
        "while True: time.sleep(0.01)\n"  # a signal just before a long sleep would be missed
    )
    for stage, name in enumerate(("server", "service")):
        wanted = spec(name, code, stage=stage)
        watch.supervisor.start(
            ProcessSpec(name=name, argv=[*wanted.argv, name], stage=stage, environment={})
        )
        await wait_for_text(tmp_path / f"{name}.log", "here")
    await watch.supervisor.stop()
    assert order.read_text().split() == ["service", "server"]


async def test_a_new_start_keeps_the_previous_log(watch: Watch, tmp_path: Path) -> None:
    """The previous log is renamed to `.1`."""
    (tmp_path / "sleeper.log").write_text("before")
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await wait_for_text(tmp_path / "sleeper.log", "here")
    assert (tmp_path / "sleeper.log.1").read_text() == "before"


def test_children_end_with_a_killed_launcher(tmp_path: Path) -> None:
    """No child survives a `kill -9` of the launcher."""
    launcher = (
        "import asyncio, os, pathlib, sys\n"
        "from deploy.local.process import ProcessSpec\n"
        "from deploy.local.supervisor import Supervisor\n"
        "async def main():\n"
        "    supervisor = Supervisor(pathlib.Path(sys.argv[1]), print_line=print)\n"
        f"    argv = [sys.executable, '-c', {SLEEPER!r}]\n"
        "    supervisor.start(ProcessSpec(name='child', argv=argv, stage=0, environment={}))\n"
        "    while not supervisor.pids(): await asyncio.sleep(0)\n"
        "    print(supervisor.pids()['child'], flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        child = int(process.stdout.readline())
        ended = os.pidfd_open(child)
        poll_for_text(tmp_path / "child.log", "here")
        process.kill()
        process.wait()
    readable, _, _ = select.select([ended], [], [], WAIT)
    os.close(ended)
    assert readable


def test_pauses_double_up_to_a_limit() -> None:
    """Each early exit doubles the pause."""
    backoff = RestartBackoff()
    pauses = [backoff.next_pause_seconds(0.0) for _ in range(8)]
    assert pauses[:4] == [FIRST_PAUSE_SECONDS, 0.4, 0.8, 1.6]
    assert pauses[-1] == MAX_PAUSE_SECONDS


def test_a_long_uptime_resets_the_pause() -> None:
    """After an uptime of thirty seconds the next pause is the shortest."""
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.next_pause_seconds(0.0)
    assert backoff.next_pause_seconds(STEADY_SECONDS) == FIRST_PAUSE_SECONDS


def test_children_get_a_filtered_environment() -> None:
    """Children do not see secrets in the user's shell."""
    passed = inheritable_environment({"PATH": "/bin", "AWS_SECRET": "x", "OTEL_SDK_DISABLED": "1"})
    assert passed == {"PATH": "/bin", "OTEL_SDK_DISABLED": "1"}


async def test_a_large_log_moves_aside_while_its_process_writes(tmp_path: Path) -> None:
    """The process continues in the emptied file; small logs stay."""
    large, small = tmp_path / "large.log", tmp_path / "small.log"
    small.write_text("short")
    with large.open("a", buffering=1) as process:
        process.write("x" * 100 + "\n")
        task = asyncio.create_task(limit_logs(tmp_path, largest=50, period=0.01))
        async with asyncio.timeout(WAIT):
            while large.stat().st_size:
                await asyncio.sleep(0.01)
        process.write("later\n")
    task.cancel()
    assert large.with_name("large.log.1").read_text() == "x" * 100 + "\n"
    assert (large.read_text(), small.read_text()) == ("later\n", "short")
