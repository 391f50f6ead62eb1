"""The image's entrypoint."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.process import PROJECT_ROOT

IMPORTING = """
import time
print("started", flush=True)
while True:  # a signal just before a long sleep would wait for its end
    time.sleep(0.01)
"""
CONNECTING = """
import asyncio
from libs.common.http import run_service

async def main():
    print("started", flush=True)
    await asyncio.sleep(60)

run_service("process", main)
"""
FIRST_PROCESS = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def namespace() -> tuple[str, ...]:
    """Return a command that runs another as process 1, as in a container, if that is allowed."""
    allowed = subprocess.run([*FIRST_PROCESS, "true"], check=False, capture_output=True)
    return FIRST_PROCESS if allowed.returncode == 0 else ()


def process_1(pid: int) -> int:
    """Return the child of `unshare`."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


async def start(
    *command: str, directory: Path, under: tuple[str, ...] = ()
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *under, sys.executable, "-m", "deploy.docker.entry", *command, cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONPATH": str(directory), "THINGWAY_ENV_FILE": f"{directory}/env"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize("program", [IMPORTING, CONNECTING], ids=["importing", "connecting"])
async def test_a_starting_process_ends_at_once(program: str, tmp_path: Path) -> None:
    """As process 1 of a container it would ignore SIGTERM without a handler."""
    (tmp_path / "program.py").write_text(program)
    under = namespace()
    process = await start("python", "-m", "program", directory=tmp_path, under=under)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    pid = process_1(process.pid) if under else process.pid
    try:
        os.kill(pid, signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGTERM
    finally:
        if process.returncode is None:
            os.kill(pid, signal.SIGKILL)


async def test_a_command_gets_the_secrets(tmp_path: Path) -> None:
    """A variable that is set keeps its value, and options reach the module."""
    (tmp_path / "env").write_text("SECRET=a=b\nPYTHONPATH=/\n")
    text = "import os, sys; print(os.environ['SECRET'], os.environ['PYTHONPATH'], sys.argv[1:])"
    (tmp_path / "program.py").write_text(text)
    expected = f"a=b {tmp_path} ['x']\n".encode()
    module = await start("python", "-m", "program", "x", directory=tmp_path)
    assert await module.communicate() == (expected, b"")
    other = await start(sys.executable, "-c", text, "x", directory=tmp_path)
    assert await other.communicate() == (expected, b"")


async def test_a_command_that_cannot_start_is_named(tmp_path: Path) -> None:
    process = await start("no-such-program", directory=tmp_path)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.startswith(b"entry: ")
