"""Children are kept running, and none is left when the launcher ends them."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local.process import Spec, base_environment
from deploy.local.supervisor import FIRST_PAUSE, LONGEST_PAUSE, STEADY_SECONDS, Backoff, Supervisor

WAIT = 10.0
SLEEPER = "import sys, time; print('here', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def spec(name: str, code: str, *, stage: int = 0, grace: float = 5.0) -> Spec:
    return Spec(
        name=name,
        argv=[sys.executable, "-c", code],
        stage=stage,
        environment=base_environment(os.environ),
        grace=grace,
    )


class Watch:
    """Wakes a test whenever the supervisor says something or a pid changes."""

    def __init__(self, logs: Path) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()
        self.supervisor = Supervisor(logs, say=self._say, changed=self._changed.set)

    def _say(self, line: str) -> None:
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


async def test_a_killed_child_is_started_again_and_said_so(watch: Watch) -> None:
    """A child that is killed comes back with a new pid, and the terminal hears of it."""
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await watch.until(lambda: "sleeper" in watch.supervisor.pids())
    first = watch.supervisor.pids()["sleeper"]
    os.kill(first, signal.SIGKILL)
    await watch.until(lambda: watch.supervisor.pids().get("sleeper") not in (None, first))
    assert watch.lines[0].startswith("sleeper was ended by SIGKILL; starting it again in 0.2 s")


async def test_a_child_that_is_restarted_ends_and_comes_back(watch: Watch) -> None:
    """A restart is a SIGTERM, after which the child is started like one that died."""
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await watch.until(lambda: "sleeper" in watch.supervisor.pids())
    first = watch.supervisor.pids()["sleeper"]
    watch.supervisor.restart("sleeper")
    await watch.until(lambda: watch.supervisor.pids().get("sleeper") not in (None, first))
    assert watch.lines[0].startswith("sleeper was ended by SIGTERM; starting it again in 0.2 s")


async def test_a_dead_child_has_no_pid(watch: Watch) -> None:
    """While a child waits for its next start, no pid is reported for it."""
    watch.supervisor.start(spec("brief", "raise SystemExit(3)"))
    await watch.until(lambda: watch.lines)
    assert watch.supervisor.pids() == {}
    assert "brief ended with exit code 3" in watch.lines[0]


async def test_a_program_that_is_not_there_is_tried_again(watch: Watch) -> None:
    """A child that cannot be started at all is told and tried again."""
    missing = Spec(name="none", argv=["/nonexistent"], stage=0, environment={})
    watch.supervisor.start(missing)
    await watch.until(lambda: len(watch.lines) == 2)
    assert "could not be started" in watch.lines[1]


async def test_stop_kills_a_child_that_ignores_sigterm(watch: Watch, tmp_path: Path) -> None:
    """After its grace a stubborn child is killed."""
    watch.supervisor.start(spec("stubborn", STUBBORN, grace=0.1))
    await wait_for_text(tmp_path / "stubborn.log", "here")
    pid = watch.supervisor.pids()["stubborn"]
    await watch.supervisor.stop()
    assert not is_alive(pid)


async def test_higher_stages_end_first(watch: Watch, tmp_path: Path) -> None:
    """A service ends while its server still runs."""
    order = tmp_path / "order"
    code = (
        "import signal, sys, time\n"
        "def bye(*_):\n"
        f"    open({str(order)!r}, 'a').write(sys.argv[1] + ' ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "print('here', flush=True)\n"
        "time.sleep(60)\n"
    )
    for stage, name in enumerate(("server", "service")):
        wanted = spec(name, code, stage=stage)
        watch.supervisor.start(
            Spec(name=name, argv=[*wanted.argv, name], stage=stage, environment={})
        )
        await wait_for_text(tmp_path / f"{name}.log", "here")
    await watch.supervisor.stop()
    assert order.read_text().split() == ["service", "server"]


async def test_a_new_start_keeps_the_previous_log(watch: Watch, tmp_path: Path) -> None:
    """The log of the run before stays as `.1`."""
    (tmp_path / "sleeper.log").write_text("before")
    watch.supervisor.start(spec("sleeper", SLEEPER))
    await wait_for_text(tmp_path / "sleeper.log", "here")
    assert (tmp_path / "sleeper.log.1").read_text() == "before"


def test_children_end_with_a_killed_launcher(tmp_path: Path) -> None:
    """Nothing outlives even a kill -9 of the launcher."""
    launcher = (
        "import asyncio, os, pathlib, sys\n"
        "from deploy.local.process import Spec\n"
        "from deploy.local.supervisor import Supervisor\n"
        "async def main():\n"
        "    supervisor = Supervisor(pathlib.Path(sys.argv[1]), say=print)\n"
        f"    argv = [sys.executable, '-c', {SLEEPER!r}]\n"
        "    supervisor.start(Spec(name='child', argv=argv, stage=0, environment={}))\n"
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


def test_pauses_double_up_to_a_bound() -> None:
    """Early deaths make the pauses longer, never beyond the bound."""
    backoff = Backoff()
    pauses = [backoff.after(0.0) for _ in range(8)]
    assert pauses[:4] == [FIRST_PAUSE, 0.4, 0.8, 1.6]
    assert pauses[-1] == LONGEST_PAUSE


def test_a_steady_life_makes_the_pause_short_again() -> None:
    """After thirty seconds of life a child is restarted at once again."""
    backoff = Backoff()
    for _ in range(5):
        backoff.after(0.0)
    assert backoff.after(STEADY_SECONDS) == FIRST_PAUSE


def test_children_see_little_of_the_environment() -> None:
    """Secrets of the user's shell do not reach the children."""
    seen = base_environment({"PATH": "/bin", "AWS_SECRET": "x", "OTEL_SDK_DISABLED": "1"})
    assert seen == {"PATH": "/bin", "OTEL_SDK_DISABLED": "1"}
