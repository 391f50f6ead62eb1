"""Servers for integration tests: MongoDB and Redis once per run, NATS once per worker.

None of them asks for a login; the launcher's secured set-up has tests of its own. MongoDB
and Redis belong to a *host* process (`python -m tests.servers`) that the first test in need
starts and that ends with the pytest run, however that ends. Tests use a database name of
their own and a Redis database per worker; NATS streams have fixed names, hence a server per
worker (it starts in 20 ms).
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from deploy.local import programs
from deploy.local.process import (
    PROJECT_ROOT,
    ProcessSpec,
    build_end_with_process,
    inheritable_environment,
    spawn,
    terminate,
)
from deploy.platform import mongo_server, ports, redis_server
from deploy.platform.files import write_private
from tests import containers

START_SECONDS = 120.0
_PAUSE_SECONDS = 0.02
_FILE = "servers.json"
_CLOSING_FILES = (
    "--setParameter=wiredTigerFileHandleCloseIdleTime=5",
    "--setParameter=wiredTigerFileHandleCloseScanInterval=2",
    "--setParameter=wiredTigerFileHandleCloseMinimum=500",
)
"""Each test has databases of its own, of a hundred files: they are closed soon after it."""
_HOST_LOG = "host.log"
_MAX_WORKERS = 64


class Shared(msgspec.Struct, frozen=True):
    """The servers that all workers share."""

    mongo_url: str
    redis_url: str
    """Without the number of a database."""
    host_pid: int


class Servers(msgspec.Struct, frozen=True):
    """What a test is given."""

    mongo_url: str
    redis_url: str
    nats_url: str


@contextlib.contextmanager
def provide(kind: str, run_directory: Path, worker: int) -> Iterator[Servers]:
    """Give worker number `worker` of a run its servers; `kind` is the option `--servers`."""
    if kind == "external":
        yield _external()
        return
    shared = _join(kind, run_directory)
    with _nats(kind, run_directory / f"nats-{worker}") as nats_url:
        redis_url = f"{shared.redis_url}/{worker % _MAX_WORKERS}"
        yield Servers(shared.mongo_url, redis_url, nats_url)


def end_run(run_directory: Path) -> None:
    """End the host process of a run, if there is one, and remove its data."""
    shared = _read(run_directory)
    if shared is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shared.host_pid, signal.SIGTERM)
            _wait_for_end(shared.host_pid)
    shutil.rmtree(run_directory, ignore_errors=True)


def host_pids(run_directory: Path) -> list[int]:
    """Return the host process of a run, if there is one."""
    shared = _read(run_directory)
    return [] if shared is None else [shared.host_pid]


def _external() -> Servers:
    names = ("TEST_MONGO_URL", "TEST_REDIS_URL", "TEST_NATS_URL")
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise RuntimeError(f"--servers=external needs {', '.join(missing)}")
    return Servers(*(os.environ[name] for name in names))


def _join(kind: str, directory: Path) -> Shared:
    """The run's shared servers, started when this is the first worker to ask."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _read(directory)
        return known if known is not None else _start_host(kind, directory)


def _start_host(kind: str, directory: Path) -> Shared:
    owner = int((directory / "owner").read_text())
    with (directory / _HOST_LOG).open("wb") as log:
        host = subprocess.Popen(
            [sys.executable, "-m", "tests.servers", kind, directory, str(owner)],
            cwd=PROJECT_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and host.poll() is None:
        started = _read(directory)
        if started is not None:
            return started
        time.sleep(_PAUSE_SECONDS)
    reason = (directory / _HOST_LOG).read_text()
    host.terminate()
    host.wait()
    raise RuntimeError(f"test servers did not start:\n{reason}")


def _read(directory: Path) -> Shared | None:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Shared)
    except FileNotFoundError:
        return None


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        os.kill(pid, 0)
        time.sleep(_PAUSE_SECONDS)


@contextlib.contextmanager
def _nats(kind: str, directory: Path) -> Iterator[str]:
    port = ports.claim_random()
    if kind == "containers":
        with containers.nats(port):
            _wait_for_nats(port)
            yield f"nats://127.0.0.1:{port}"
        return
    program = programs.find_program(programs.NATS).path
    process = subprocess.Popen(
        [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", directory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=build_end_with_process(os.getpid()),
    )
    try:
        _wait_for_nats(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _wait_for_nats(port: int) -> None:
    """Wait for the greeting: a published container port accepts before the server does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=1) as connection,
        ):
            if connection.recv(4) == b"INFO":
                return
        time.sleep(_PAUSE_SECONDS)
    raise RuntimeError("nats-server did not start")


async def _host(kind: str, directory: Path, owner: int) -> None:
    """Keep the shared servers until the pytest process `owner` ends or SIGTERM comes."""
    serving = asyncio.create_task(_serve(kind, directory))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, serving.cancel)
    owner_ended = os.pidfd_open(owner)
    loop.add_reader(owner_ended, lambda: (loop.remove_reader(owner_ended), serving.cancel()))
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    shutil.rmtree(directory, ignore_errors=True)


async def _serve(kind: str, directory: Path) -> None:
    """Start the shared servers, tell the workers, and keep them until cancelled."""
    mongo_port = ports.claim_random()
    redis_port = ports.claim_random()
    run = containers.host if kind == "containers" else _embedded
    async with run(directory, mongo_port, redis_port):
        async with asyncio.timeout(60):
            await mongo_server.initiate_replica_set(mongo_port)
        redis_url = f"redis://127.0.0.1:{redis_port}"
        await redis_server.wait_ready(redis_url)
        mongo_url = f"mongodb://127.0.0.1:{mongo_port}/?replicaSet=rs0&directConnection=true"
        shared = Shared(mongo_url, redis_url, os.getpid())
        write_private(directory / _FILE, msgspec.json.encode(shared))
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _embedded(directory: Path, mongo_port: int, redis_port: int):
    commands = {
        "mongod": [
            *mongo_server.bare_server_command(
                programs.find_program(programs.MONGOD).path, _made(directory / "mongo"), mongo_port
            ),
            *_CLOSING_FILES,
        ],
        "redis": redis_server.bare_server_command(
            programs.find_program(programs.REDIS).path,
            _made(directory / "redis"),
            redis_port,
            {"databases": str(_MAX_WORKERS)},
        ),
    }
    base = inheritable_environment(os.environ)
    specs = [ProcessSpec(name=n, argv=c, stage=0, environment=base) for n, c in commands.items()]
    children = [await spawn(spec, directory / f"{spec.name}.log", ()) for spec in specs]
    try:
        yield
    finally:
        await asyncio.gather(*(terminate(child, 10) for child in children))


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


if __name__ == "__main__":
    asyncio.run(_host(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
