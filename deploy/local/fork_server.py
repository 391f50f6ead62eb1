"""The fork server: services share the memory of a process that imported all.

The server starts without secrets and without threads. A request consists of descriptors only: a
forked process reads its environment from a pipe, so no process holds the secrets of another.

The launcher becomes the parent of the forked processes and supervises them like other children.
They continue when the server ends; the next start of a service starts another server.
"""

import asyncio
import contextlib
import gc
import importlib
import os
import runpy
import socket
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from deploy.local.process import (
    ForkedProcess,
    ProcessSpec,
    adopt_orphans,
    build_end_with_process,
    name_process,
    open_log,
    spawn,
    terminate,
)

PROCESS_NAME = "fork-server"
_READY_MESSAGE = b"ready"
_REPLY_SECONDS = 30.0
_MAX_DESCRIPTORS = 16
_DESCRIPTORS_FOLDER = Path("/proc/self/fd")


class _ForkedProgram(msgspec.Struct, frozen=True):
    """The Python module that a forked process runs, its arguments and environment."""

    name: str
    argv: Sequence[str]
    environment: dict[str, str]
    parent: int


class ForkServer:
    """A client of the fork server, which it starts when needed.

    `modules` are the modules that forked processes may run. Forked processes inherit the
    descriptors in `keep_open`.
    """

    def __init__(
        self,
        modules: Sequence[str],
        environment: dict[str, str],
        logs: Path,
        keep_open: Collection[int] = (),
    ) -> None:
        self._spec = ProcessSpec(
            name=PROCESS_NAME,
            argv=[sys.executable, "-m", __name__, *modules],
            stage=0,
            environment=environment,
        )
        self._log = logs / f"{PROCESS_NAME}.log"
        self._keep_open = tuple(keep_open)
        self._starting: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._requests: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id while the server runs, else None."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the server unless it runs; return when it has imported its modules.

        Raises `OSError` if it ends first.
        """
        if self._starting is None or (self._starting.done() and self.pid is None):
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    async def fork(self, spec: ProcessSpec, log: Path) -> ForkedProcess:
        """Return a new process in its own session; raise `OSError` if the server fails."""
        await self.start()
        source, target = os.pipe()
        output = open_log(log)
        try:
            pid = self._request_fork([source, output, *self._keep_open])
            program = _ForkedProgram(spec.name, spec.argv, dict(spec.environment), os.getpid())
            os.write(target, msgspec.json.encode(program))
        except OSError:
            if self.pid is not None and self._process is not None:
                self._process.kill()
            raise
        finally:
            for handle in (source, target, output):
                os.close(handle)
        return ForkedProcess(pid)

    async def stop(self) -> None:
        """Stop the server."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._process is not None:
            await terminate(self._process, self._spec.grace)

    async def _start(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._requests, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with requests:
            self._process = await spawn(self._spec, self._log, self._keep_open, requests.fileno())
        self._requests.setblocking(False)  # noqa: FBT003 - the signature of socket
        answer = await asyncio.get_running_loop().sock_recv(self._requests, len(_READY_MESSAGE))
        if answer != _READY_MESSAGE:
            await self._process.wait()
            raise OSError(f"the fork server ended (see {self._log})")
        self._requests.settimeout(_REPLY_SECONDS)

    def _request_fork(self, handles: Sequence[int]) -> int:
        """Request a fork with these descriptors; return the pid of the new process."""
        if self._requests is None:
            raise AssertionError("the server has been started")
        try:
            with adopt_orphans():
                socket.send_fds(self._requests, [b"\0"], handles)
                return int(self._requests.recv(32))
        except (OSError, ValueError) as error:  # no bytes at the end of the connection
            raise OSError(f"the fork server does not respond (see {self._log})") from error


def main(modules: Sequence[str]) -> None:
    """Import modules, then fork a process for each request on standard input.

    Returns in each forked process when its program has ended.
    """
    gc.disable()
    for name in modules:
        _import_program(name)
    _warm_libraries()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise AssertionError("a module starts threads when it is imported")
    gc.freeze()
    program = _serve_forks(socket.socket(fileno=0))
    if program is not None:
        gc.enable()
        runpy.run_module(program.argv[-1], run_name="__main__", alter_sys=True)


def _import_program(name: str) -> None:
    """Import what `python -m NAME` imports."""
    if hasattr(importlib.import_module(name), "__path__"):
        name = f"{name}.__main__"
        importlib.import_module(name)
    del sys.modules[name]  # `runpy` warns of a program that is imported already


def _warm_libraries() -> None:
    """Use libraries once, so that forked processes share what first use allocates."""
    import anyio  # noqa: PLC0415 - the launcher does not need these libraries
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    from litestar import Litestar  # noqa: PLC0415

    from libs.common.store.mongo import Mongo  # noqa: PLC0415

    async def create_clients() -> None:
        await Mongo("mongodb://localhost", "none").close()

    Litestar(logging_config=None)
    AESGCM(bytes(32))
    anyio.run(create_clients)


def _serve_forks(requests: socket.socket) -> _ForkedProgram | None:
    """Fork for each request; return in each child its program, at the end None."""
    requests.send(_READY_MESSAGE)
    while True:
        _, handles, _, _ = socket.recv_fds(requests, 1, _MAX_DESCRIPTORS)
        if not handles:
            return None
        pid = _fork_orphan()
        if pid is None:
            requests.detach()
            return _prepare_forked_process(*handles)
        requests.send(str(pid).encode())
        for handle in handles:
            os.close(handle)


def _fork_orphan() -> int | None:
    """Fork twice; return the grandchild's pid, and None in the grandchild.

    The child ends, so that the kernel makes the grandchild a child of the launcher.
    """
    source, target = os.pipe()
    parent = os.fork()
    if parent:
        os.close(target)
        os.waitpid(parent, 0)
        with os.fdopen(source) as answer:
            return int(answer.read())
    if os.fork():
        os._exit(0)
    os.setsid()
    os.write(target, str(os.getpid()).encode())
    os.close(source)
    os.close(target)
    return None


def _prepare_forked_process(source: int, output: int, *kept: int) -> _ForkedProgram:
    """Set descriptors, environment and name of this process; return its program."""
    with open(source, "rb") as pipe:
        content = pipe.read()
    if not content:
        sys.exit("the launcher ended")
    program = msgspec.json.decode(content, type=_ForkedProgram)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, handle in enumerate((null, output, output)):
        os.dup2(handle, number)
    for handle in {int(entry.name) for entry in _DESCRIPTORS_FOLDER.iterdir()} - {0, 1, 2, *kept}:
        with contextlib.suppress(OSError):  # the descriptor of the listing is closed already
            os.close(handle)
    os.environ.clear()
    os.environ.update(program.environment)
    build_end_with_process(program.parent)()
    name_process(program.name, program.argv)
    return program


if __name__ == "__main__":
    main(sys.argv[1:])
