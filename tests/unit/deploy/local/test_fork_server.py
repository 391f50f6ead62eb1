"""Forked processes share no secret, and behave like children that were started alone."""

import asyncio
import itertools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.fork_server import ForkServer
from deploy.local.process import ForkedProcess, ProcessSpec, system_environment, terminate

PROGRAM = """\
import json, os, signal, sys, time
from pathlib import Path

if __name__ == "__main__":
    print(json.dumps({
        "argv": sys.orig_argv[-1],
        "environment": dict(os.environ),
        "handles": sorted(
            os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()
        ),
        "leads": os.getsid(0) == os.getpid(),
        "ends_as_usual": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    }), flush=True)
    if "CODE" in os.environ:
        sys.exit(int(os.environ["CODE"]))
    time.sleep(60)
"""
NUMBERS = itertools.count()
"""Of processes, so that each has a log of its own."""


@pytest.fixture(scope="module")
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of all tests, which share a fork server."""
    return tmp_path_factory.mktemp("forked")


@pytest.fixture(scope="module")
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a fork server that finds the module `program`."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return system_environment(os.environ) | {"PYTHONPATH": str(tmp_path)}


@pytest.fixture(scope="module")
def kept(tmp_path: Path) -> Iterator[int]:
    """Return a descriptor that forked processes inherit."""
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    yield handle
    os.close(handle)


@pytest.fixture(scope="module")
async def server(
    tmp_path: Path, environment: dict[str, str], kept: int
) -> AsyncIterator[ForkServer]:
    """Return a fork server of `program`."""
    made = ForkServer(["program"], environment, tmp_path, [kept])
    yield made
    await made.stop()


class Forked:
    """A forked process and its log."""

    def __init__(self, process: ForkedProcess, log: Path) -> None:
        self.process = process
        self.log = log

    async def read(self) -> dict:
        """Return what the program printed."""
        async with asyncio.timeout(20):
            while "\n" not in (text := await asyncio.to_thread(self.log.read_text)):
                await asyncio.sleep(0.01)
        return json.loads(text)


async def fork(server: ForkServer, tmp_path: Path, name: str, **environment: str) -> Forked:
    log = tmp_path / f"{name}-{next(NUMBERS)}.log"
    argv = [sys.executable, "-m", "program"]
    spec = ProcessSpec(name=name, argv=argv, stage=0, environment=environment, forked=True)
    return Forked(await server.fork(spec, log), log)


def read_memory(pid: int) -> bytes:
    """Return the writable memory of a process."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                memory.seek(start)
                parts.append(memory.read(end - start))
    return b"".join(parts)


async def test_a_forked_process_has_only_its_environment(server, tmp_path) -> None:
    """The environment of the server and of the launcher is not inherited."""
    forked = await fork(server, tmp_path, "one", SECRET="s")
    assert (await forked.read())["environment"] == {"SECRET": "s"}


async def test_no_process_holds_the_secret_of_another(server, tmp_path) -> None:
    """A secret is in the memory of one process only; the fork server knows none."""
    secrets = {name: os.urandom(16).hex() for name in ("one", "two")}
    forked = {name: await fork(server, tmp_path, name, SECRET=secrets[name]) for name in secrets}
    for process in forked.values():
        await process.read()
    processes = {name: each.process.pid for name, each in forked.items()} | {"server": server.pid}
    for name, pid in processes.items():
        memory = await asyncio.to_thread(read_memory, pid)
        held = {other for other, secret in secrets.items() if secret.encode() in memory}
        assert held == {name} - {"server"}


async def test_a_forked_process_has_standard_descriptors_and_those_kept(server, tmp_path) -> None:
    """It inherits neither the requests of the server nor the environment of another process."""
    await fork(server, tmp_path, "one")
    forked = await fork(server, tmp_path, "two")
    log = str(forked.log)
    expected = ["/dev/null", log, log, str(tmp_path / "lock")]
    assert (await forked.read())["handles"] == sorted(expected)


async def test_ps_shows_the_name_and_the_module(server, tmp_path) -> None:
    """A forked process looks like `python -m program`."""
    forked = await fork(server, tmp_path, "my-service")
    assert (await forked.read())["leads"]
    process = Path(f"/proc/{forked.process.pid}")
    assert (process / "comm").read_text() == "my-service\n"
    arguments = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert arguments == [sys.executable.encode(), b"-m", b"program"]


async def test_the_exit_code_is_reported(server, tmp_path) -> None:
    """Exit codes and signals are those of the forked process."""
    ended = await fork(server, tmp_path, "one", CODE="3")
    assert await ended.process.wait() == 3
    running = await fork(server, tmp_path, "two")
    assert (await running.read())["ends_as_usual"]
    assert await terminate(running.process, 10)
    assert running.process.returncode == -signal.SIGTERM


async def until_ended(server: ForkServer) -> None:
    """Return when the launcher knows that the server has ended."""
    while server.pid is not None:
        await asyncio.sleep(0.01)


async def test_processes_continue_when_the_server_ends(server, tmp_path) -> None:
    """The next request starts another server."""
    first = await fork(server, tmp_path, "one")
    await first.read()
    before = server.pid
    os.kill(before, signal.SIGKILL)
    with pytest.raises(OSError, match="fork server does not respond"):
        await fork(server, tmp_path, "other")
    await asyncio.wait_for(until_ended(server), 10)
    second = await fork(server, tmp_path, "two")
    await second.read()
    assert server.pid not in (None, before)
    assert first.process.returncode is None
    await terminate(first.process, 10)


async def test_a_module_that_starts_a_thread_is_refused(tmp_path, environment) -> None:
    """A forked process would lack the thread."""
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    server = ForkServer(["threaded"], environment, tmp_path)
    with pytest.raises(OSError, match="fork server ended"):
        await server.start()
    assert "a module starts threads" in (tmp_path / "fork-server.log").read_text()


def test_forked_processes_end_with_a_killed_launcher(tmp_path, environment) -> None:
    """No forked process and no fork server survives a `kill -9` of the launcher."""
    launcher = (
        "import asyncio, os, pathlib, sys\n"
        "from deploy.local.fork_server import ForkServer\n"
        "from deploy.local.process import ProcessSpec\n"
        "async def main():\n"
        "    logs = pathlib.Path(sys.argv[1])\n"
        "    server = ForkServer(['program'], dict(os.environ), logs)\n"
        "    argv = [sys.executable, '-m', 'program']\n"
        "    spec = ProcessSpec(name='one', argv=argv, stage=0, environment={}, forked=True)\n"
        "    process = await server.fork(spec, logs / 'one.log')\n"
        "    print(process.pid, server.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", launcher, tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        env=environment | {"PYTHONPATH": f"{Path.cwd()}:{tmp_path}"},
    )
    assert process.stdout is not None
    with process.stdout:
        handles = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
        process.wait()
    for handle in handles:
        wait_for_end(handle)


def wait_for_end(handle: int) -> None:
    """Wait until the process of a pidfd has ended."""
    readable, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    assert readable


def test_the_launcher_imports_only_the_settings_of_services() -> None:
    """The launcher runs as long as the platform, and keeps its imports in memory."""
    program = "import deploy.local.up, sys; print(*sys.modules)"
    found = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert not {"litestar", "uvicorn", "aiomqtt", "libs.common.process"} & set(found)


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """Return what a process has after it imported all services and warmed their libraries."""
    program = (
        "import json, sys, threading\n"
        "from deploy.local.fork_server import _import_program, _warm_libraries\n"
        "from deploy.platform.services import SERVICES\n"
        "from libs.common.store.mongo import Mongo\n"
        "for service in SERVICES:\n"
        "    _import_program(service.module)\n"
        "modules = list(sys.modules)\n"
        "created, create = [], Mongo.__init__\n"
        "Mongo.__init__ = lambda self, *given: created.append(given) or create(self, *given)\n"
        "_warm_libraries()\n"
        "print(json.dumps({'modules': modules, 'clients': len(created), "
        "'threads': threading.active_count()}))\n"
    )
    return json.loads(subprocess.check_output([sys.executable, "-c", program], text=True))


def test_services_import_rare_libraries_when_they_need_them(imported: dict[str, Any]) -> None:
    """Libraries of single features need 17 MiB, which no service at rest keeps."""
    found = set(imported["modules"])
    assert {"services.workflow.app", "services.management.app"} <= found
    assert not {"grpc", "google.protobuf", "xlsxwriter", "pydantic_monty", "quickjs"} & found


def test_the_server_creates_clients_of_mongodb_before_it_forks(imported: dict[str, Any]) -> None:
    """Services share the memory of their first use; the clients start no thread."""
    assert (imported["clients"], imported["threads"]) == (1, 1)
