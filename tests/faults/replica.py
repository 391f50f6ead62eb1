"""Replicas of a service on the servers of the tests, which `kill -9` may hit."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.platform import ports

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Replica:
    """A process of a service, which may die and be started again."""

    service: str
    environment: dict[str, str]
    log: Path
    port: int = field(default_factory=ports.claim_random)
    process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"services.{self.service}"],
            cwd=ROOT,
            env={**os.environ, **self.environment, "THINGWAY_PORT": str(self.port)},
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(60), httpx.AsyncClient(verify=False) as http:
            while True:
                assert self.process.poll() is None, self.log.read_text()[-4000:]
                with suppress(httpx.HTTPError):
                    if (await http.get(f"http://127.0.0.1:{self.port}/readyz")).is_success:
                        return
                await asyncio.sleep(0.1)

    def kill(self) -> None:
        """`kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
