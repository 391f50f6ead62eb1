"""`thingway version`: what runs here."""

import os
import platform
import subprocess
from argparse import Namespace
from dataclasses import asdict, dataclass

import msgspec

from deploy.local.process import PROJECT_ROOT
from deploy.local.programs import MONGOD, NATS, REDIS, find
from deploy.platform.errors import LauncherError
from libs.common.version import VERSION

COMMIT = "THINGWAY_COMMIT"
"""Environment variable; the image has it from its build."""


@dataclass(frozen=True)
class Versions:
    """Versions by what they are of; None where nobody knows."""

    thingway: str
    commit: str | None
    python: str
    servers: dict[str, str]


async def show(given: Namespace) -> None:
    """Print them."""
    found = Versions(VERSION, commit(), platform.python_version(), _servers())
    if given.json:
        print(msgspec.json.format(msgspec.json.encode(asdict(found)), indent=2).decode())
        return
    print(f"thingway {found.thingway}" + (f" ({found.commit})" if found.commit else ""))
    for name, text in {"Python": found.python, **found.servers}.items():
        print(f"{name:<14} {text}")


def commit() -> str | None:
    """The commit that this was made from, when it is known."""
    given = os.environ.get(COMMIT)
    if given or not (PROJECT_ROOT / ".git").exists():
        return given or None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - whatever git there is
            cwd=PROJECT_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _servers() -> dict[str, str]:
    """The servers that `thingway up` would start, by name."""
    found = {}
    for wanted in (MONGOD, NATS, REDIS):
        try:
            program = find(wanted)
        except LauncherError:
            found[wanted.name] = "none that runs here"
        else:
            found[wanted.name] = f"{program.version_text} ({program.source})"
    return found
