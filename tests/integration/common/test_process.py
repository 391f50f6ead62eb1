"""What every service process does with its settings."""

import asyncio
import os
import sys

import pytest

from deploy.local.process import PROJECT_ROOT

SERVICE = """
import logging
from libs.common.http import run_service

async def main():
    for name in ("ours", "nats"):
        for level in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), level)("said")

run_service("process", main)
"""


async def said(level: str | None) -> list[str]:
    """Level and logger of each line that a service writes."""
    environment = {key: value for key, value in os.environ.items() if key != "THINGWAY_LOG_LEVEL"}
    if level is not None:
        environment["THINGWAY_LOG_LEVEL"] = level
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, cwd=PROJECT_ROOT, env=environment,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, text = await process.communicate()
    lines = [line.split() for line in text.decode().splitlines()]
    return [f"{line[-3]} {line[-2]}" for line in lines if line[-2] in {"ours", "nats"}]


OURS = ["DEBUG ours", "INFO ours", "WARNING ours", "ERROR ours"]
THEIRS = ["WARNING nats", "ERROR nats"]


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        ("DEBUG", [*OURS, *THEIRS]),
        (None, [*OURS[1:], *THEIRS]),
        ("WARNING", [*OURS[2:], *THEIRS]),
        ("ERROR", [*OURS[3:], *THEIRS[1:]]),
    ],
)
async def test_log_level_is_honoured(level: str | None, lines: list[str]) -> None:
    """Nothing below the level is logged, and of libraries nothing below a warning."""
    assert lines == await said(level)
