"""Servers and processes of a benchmark, in a temporary directory."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from deploy.local import programs
from deploy.platform import mongo_server, ports
from libs.common.identity import generate_keys

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Stack:
    """MongoDB and NATS without passwords, and services started with them."""

    directory: Path
    mongo_url: str
    nats_url: str
    mqtt_port: int
    children: list[subprocess.Popen[bytes]]

    def start(self, module: str, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start `python -m module`; return it with its port."""
        port = ports.claim_random()
        _, public = generate_keys()
        child = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={
                **os.environ,
                "THINGWAY_MONGO_URL": self.mongo_url,
                "THINGWAY_MONGO_DATABASE": "bench",
                "THINGWAY_NATS_URL": self.nats_url,
                "THINGWAY_PORT": str(port),
                "THINGWAY_INTERNAL_PUBLIC_KEY": public,
                **environment,
            },
            stderr=(self.directory / f"{module}.log").open("ab"),
        )
        self.children.append(child)
        return child, port

    def spent(self) -> float:
        """Return the processor seconds of all processes and their children."""
        pids = [child.pid for child in self.children]
        children = [child for pid in pids for child in _children(pid)]
        return sum(map(processor_seconds, pids + children))


@contextlib.asynccontextmanager
async def stack() -> AsyncIterator[Stack]:
    """Start the servers; stop everything afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    mongo_port, nats_port = ports.claim_random(), ports.claim_random()
    mqtt_port = ports.claim_random()
    data = directory / "mongo"
    data.mkdir()
    config = directory / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{nats_port}\nserver_name: bench\n"
        f'mqtt {{ listen: "127.0.0.1:{mqtt_port}" }}\n'
        f'jetstream {{ store_dir: "{directory}/nats", sync_interval: "100ms" }}\n'
    )
    commands = [
        mongo_server.bare_server_command(
            programs.find_program(programs.MONGOD).path, data, mongo_port
        ),
        [str(programs.find_program(programs.NATS).path), "-c", str(config)],
    ]
    children = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    running = Stack(
        directory,
        f"mongodb://127.0.0.1:{mongo_port}/?replicaSet=rs0&directConnection=true",
        f"nats://127.0.0.1:{nats_port}",
        mqtt_port,
        children,
    )
    try:
        async with asyncio.timeout(60):
            await mongo_server.initiate_replica_set(mongo_port)
        yield running
    finally:
        for child in reversed(children):
            child.terminate()
            child.send_signal(signal.SIGCONT)  # a stopped process would not end
        for child in children:
            child.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process (proc(5): `utime` and `stime`)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ready(port: int, seconds: float = 30.0) -> None:
    """Wait until a service is ready."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{port}/readyz", timeout=2
            )
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"nothing is ready on port {port}")
