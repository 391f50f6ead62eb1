"""`thingway doctor`: can this machine run the platform, and is the one that runs well?"""

import os
import platform
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from deploy.checkup import Settings, addresses_of
from deploy.checkup import examine as examine_platform
from deploy.checkup.findings import Finding
from deploy.docker.entry import complete
from deploy.local import lock, programs
from deploy.local.options import given_ports, port_options
from deploy.platform import ports, ready
from deploy.platform import state as states
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.services import (
    PUBLIC_SERVICE,
    SERVICES,
    Doors,
    environment,
    internal_port_names,
)
from libs.common.settings import PREFIX

_LEAST_PYTHON = (3, 11)
_LEAST_FREE_GB = 2.0
_GB = 1e9
_OK, _WARNING, _BAD = "[green]ok[/green]", "[yellow]warning[/yellow]", "[red]bad[/red]"


async def examine(given: Namespace) -> Exit:
    """Print a table of findings, or JSON; what is only a warning fails nothing.

    In a container of a service the findings are what its settings let see, elsewhere they are of
    this machine and of the platform that runs with the data in `given.data`.
    """
    settings = complete(os.environ)
    inside = f"{PREFIX}NATS_URL" in settings
    findings = await (_around(settings) if inside else _here(given))
    if given.json:
        print(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        _show(findings)
    return Exit.OK if all(one.good or one.minor for one in findings) else Exit.FAILED


def _show(findings: Iterable[Finding]) -> None:
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False)
    for finding in findings:
        mark = _WARNING if finding.minor else _BAD
        todo = f"\n→ {finding.todo}" if finding.todo else ""
        table.add_row(finding.subject, _OK if finding.good else mark, escape(finding.text + todo))
    Console().print(table)


async def _around(settings: Settings) -> list[Finding]:
    """What is seen from a container of a service, with its settings."""
    scheme = "https" if settings.get(f"{PREFIX}TLS_CERTIFICATE") else "http"
    own = f"{scheme}://{ports.LOOPBACK}:{settings.get(f'{PREFIX}PORT', '8000')}"
    name = settings.get(f"{PREFIX}NATS_USER", "here")
    return await examine_platform([settings], {name: own} | addresses_of(settings))


async def _here(given: Namespace) -> list[Finding]:
    """What is seen on this machine."""
    directory, doors = given.data, port_options(given_ports(given))
    running = lock.is_held(directory)
    findings = [_python(), *_programs(), _writable(directory), _space(directory)]
    findings += [_port(given.host, option, port, running=running) for option, port in doors.items()]
    return findings + (await _platform(directory) if running else [_not_running(directory)])


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


async def _platform(directory: Path) -> list[Finding]:
    """What is seen of the platform that runs with these data."""
    is_ready = ready.read(directory) is not None
    state = states.load(directory)
    first = Finding("platform", good=is_ready, text="running" if is_ready else "starting")
    if state.addresses is None:
        return [first]
    at = state.addresses
    doors = Doors("", 0, at.base_url, at.nats_url, at.mqtt_url, ca_file=at.ca_file)
    settings = [environment(service, state, doors) for service in SERVICES]
    addresses = {
        name: f"http://{ports.LOOPBACK}:{state.ports[name]}" for name in internal_port_names()
    }
    found = await examine_platform(settings, addresses | {PUBLIC_SERVICE: at.base_url})
    return [first, *found]
