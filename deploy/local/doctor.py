"""`thingway doctor`: can this machine run the platform, and does it run?"""

import os
import platform
import shutil
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from deploy.local import lock, programs
from deploy.local.options import given_ports, port_options
from deploy.platform import ports, ready
from deploy.platform import state as states
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.serving import is_serving, probing

_LEAST_PYTHON = (3, 11)
_LEAST_FREE_GB = 2.0
_GB = 1e9


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    good: bool
    text: str


async def examine(given: Namespace) -> Exit:
    """Print a table of findings."""
    directory = given.data
    doors = port_options(given_ports(given))
    running = lock.is_held(directory)
    findings = [_python(), *_programs(), _writable(directory), _space(directory)]
    findings += [_port(given.host, option, port, running=running) for option, port in doors.items()]
    findings += await _services(directory) if running else [_not_running(directory)]
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False)
    for finding in findings:
        mark = "[green]ok[/green]" if finding.good else "[red]bad[/red]"
        table.add_row(finding.subject, mark, finding.text)
    Console().print(table)
    return Exit.OK if all(finding.good for finding in findings) else Exit.FAILED


def _python() -> Finding:
    good = sys.version_info >= _LEAST_PYTHON
    return Finding("Python", good, f"{platform.python_version()} ({sys.executable})")


def _programs() -> list[Finding]:
    findings = []
    for wanted in (programs.MONGOD, programs.NATS, programs.REDIS):
        try:
            found = programs.find(wanted)
        except LauncherError as error:
            findings.append(Finding(wanted.name, good=False, text=str(error)))
        else:
            text = f"{found.version_text} from {found.source} ({found.path})"
            findings.append(Finding(wanted.name, good=True, text=text))
    return findings


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    return next(
        path for path in (directory.resolve(), *directory.resolve().parents) if path.exists()
    )


def _writable(directory: Path) -> Finding:
    place = _existing(directory)
    good = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return Finding("data directory", good, f"{directory} is {'' if good else 'not '}writable")


def _space(directory: Path) -> Finding:
    free = shutil.disk_usage(_existing(directory)).free / _GB
    return Finding("disk", free >= _LEAST_FREE_GB, f"{free:.1f} GB free")


def _port(host: str, option: str, port: int, *, running: bool) -> Finding:
    subject = f"port {port}"
    if ports.is_free(port, host):
        return Finding(subject, good=True, text="free")
    owner = "in use (a launcher runs here)" if running else f"in use: choose another with {option}"
    return Finding(subject, good=running, text=owner)


def _not_running(directory: Path) -> Finding:
    return Finding("platform", good=True, text=f"not running with data in {directory}")


async def _services(directory: Path) -> list[Finding]:
    state = states.load(directory)
    urls = {
        name: f"http://{ports.LOOPBACK}:{port}"
        for name, port in state.ports.items()
        if name not in ("mongod", "redis")
    }
    if state.addresses is not None:
        urls["gateway"] = state.addresses.base_url
    async with probing(state.addresses.ca_file if state.addresses else "") as session:
        findings = [
            Finding(name, good := await is_serving(session, url), "ready" if good else "not ready")
            for name, url in urls.items()
        ]
    is_ready = ready.read(directory) is not None
    text = "running" if is_ready else "starting"
    return [Finding("platform", is_ready, text), *findings]
