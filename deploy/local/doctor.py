"""`thingway doctor`: checks of this machine and of the platform that runs on it."""

import asyncio
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

from deploy.checkup import ServiceEnvironment, run_checks, service_addresses
from deploy.checkup.findings import Finding
from deploy.docker.entry import add_secrets
from deploy.local import lock, programs
from deploy.local.options import open_ports_by_option, read_ports
from deploy.platform import ports, ready
from deploy.platform import state as states
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.services import (
    PUBLIC_SERVICE,
    SERVICES,
    Endpoints,
    build_environment,
    internal_service_names,
)
from libs.common.settings import VARIABLE_PREFIX

_PROGRAMS = (programs.MONGOD, programs.NATS, programs.REDIS)
_MIN_PYTHON = (3, 11)
_MIN_FREE_GB = 2.0
_GB = 1e9
_OK, _WARNING, _BAD = "[green]ok[/green]", "[yellow]warning[/yellow]", "[red]bad[/red]"


async def run(options: Namespace) -> Exit:
    """Print the findings as a table or JSON; return exit code 1 for a bad one.

    In a service's container, check the service with the stores and services in its settings.
    Elsewhere check this machine and the platform whose data are in `options.data`. Warnings do not
    change the exit code.
    """
    settings = add_secrets(os.environ)
    inside = f"{VARIABLE_PREFIX}NATS_URL" in settings
    findings = await (_check_container(settings) if inside else _check_machine(options))
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        _print_table(findings)
    return Exit.OK if all(finding.good or finding.minor for finding in findings) else Exit.FAILED


def _print_table(findings: Iterable[Finding]) -> None:
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False)
    for finding in findings:
        mark = _WARNING if finding.minor else _BAD
        todo = f"\n→ {finding.todo}" if finding.todo else ""
        table.add_row(finding.subject, _OK if finding.good else mark, escape(finding.text + todo))
    Console().print(table)


async def _check_container(settings: ServiceEnvironment) -> list[Finding]:
    """Check this container's service, and the stores and services of its settings."""
    scheme = "https" if settings.get(f"{VARIABLE_PREFIX}TLS_CERTIFICATE") else "http"
    port = settings.get(f"{VARIABLE_PREFIX}OPERATIONS_PORT") or settings.get(
        f"{VARIABLE_PREFIX}PORT", "8000"
    )
    own_url = f"{scheme}://{ports.LOOPBACK}:{port}"
    name = settings.get(f"{VARIABLE_PREFIX}NATS_USER", "here")
    return await run_checks([settings], {name: own_url} | service_addresses(settings))


async def _check_machine(options: Namespace) -> list[Finding]:
    """Check this machine, and the platform if it runs."""
    directory, listeners = options.data, open_ports_by_option(read_ports(options))
    running = lock.is_held(directory)
    machine_findings, platform_findings = await asyncio.gather(
        asyncio.gather(*(asyncio.to_thread(_check_program, each) for each in _PROGRAMS)),
        _check_platform(directory) if running else _report_not_running(directory),
    )
    ports_found = [
        _check_port(options.host, option, port, running=running)
        for option, port in listeners.items()
    ]
    machine = [
        _check_python(),
        *machine_findings,
        _check_data_directory(directory),
        _check_space(directory),
        *ports_found,
    ]
    return [*machine, *platform_findings]


def _check_python() -> Finding:
    good = sys.version_info >= _MIN_PYTHON
    return Finding("Python", good, f"{platform.python_version()} ({sys.executable})")


def _check_program(required: programs.RequiredProgram) -> Finding:
    try:
        program = programs.find_program(required)
    except LauncherError as error:
        return Finding(required.name, good=False, text=str(error))
    text = f"{program.version_text} from {program.source} ({program.path})"
    return Finding(required.name, good=True, text=text)


def _existing_parent(directory: Path) -> Path:
    """Return the directory, or its nearest existing parent."""
    return next(
        path for path in (directory.resolve(), *directory.resolve().parents) if path.exists()
    )


def _check_data_directory(directory: Path) -> Finding:
    place = _existing_parent(directory)
    good = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return Finding("data directory", good, f"{directory} is {'' if good else 'not '}writable")


def _check_space(directory: Path) -> Finding:
    free = shutil.disk_usage(_existing_parent(directory)).free / _GB
    return Finding("disk", free >= _MIN_FREE_GB, f"{free:.1f} GB free")


def _check_port(host: str, option: str, port: int, *, running: bool) -> Finding:
    subject = f"port {port}"
    if ports.is_free(port, host):
        return Finding(subject, good=True, text="free")
    text = "in use (a launcher is running)" if running else f"in use: choose another with {option}"
    return Finding(subject, good=running, text=text)


async def _report_not_running(directory: Path) -> list[Finding]:
    return [Finding("platform", good=True, text=f"not running with data in {directory}")]


async def _check_platform(directory: Path) -> list[Finding]:
    """Check the platform whose data are in `directory`."""
    is_ready = ready.read(directory) is not None
    state = states.load(directory)
    first = Finding("platform", good=is_ready, text="running" if is_ready else "starting")
    if state.addresses is None:
        return [first]
    public = state.addresses
    endpoints = Endpoints(
        "", 0, public.base_url, public.nats_url, public.mqtt_url, ca_file=public.ca_file
    )
    settings = [build_environment(service, state, endpoints) for service in SERVICES]
    addresses = {
        name: f"http://{ports.LOOPBACK}:{state.ports[name]}" for name in internal_service_names()
    }
    findings = await run_checks(settings, addresses | {PUBLIC_SERVICE: public.base_url})
    return [first, *findings]
