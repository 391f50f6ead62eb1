"""`thingway up`: the whole platform on one machine, until Ctrl-C."""

import asyncio
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from deploy.local import fork_server, jetstream, lock, servers, simulator
from deploy.local.fork_server import ForkServer
from deploy.local.options import (
    DEFAULT_PLAIN_AND_TLS_PORTS_BY_LISTENER,
    open_ports_by_option,
    read_ports,
)
from deploy.local.process import (
    ProcessSpec,
    end_with_parent,
    inheritable_environment,
    system_environment,
)
from deploy.local.progress import StartProgress, format_summary
from deploy.local.supervisor import Supervisor, run_concurrently, wait_ready
from deploy.platform import console, ports, ready, services
from deploy.platform import state as states
from deploy.platform.bootstrap import bootstrap
from deploy.platform.certificates import CertificateFiles
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.files import create_private_directory
from deploy.platform.nats_grants import ADMIN_USER, SYSTEM_USER
from deploy.platform.openapi import wait_until_ready
from deploy.platform.services import PUBLIC_SERVICE, SERVICES, Endpoints, Service
from deploy.platform.state import Addresses

END_WITH_PARENT_VARIABLE = "THINGWAY_END_WITH_PARENT"
"""Variable that the Makefile sets, so that the launcher ends when make is killed."""
_SERVICE_STAGE = 3


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The options of `thingway up`."""

    data: Path
    host: str
    port: int
    mqtt_port: int
    nats_port: int
    websocket_port: int | None
    certificate_port: int | None
    certificate_nats_port: int | None
    tls: bool
    tls_name: list[str]
    workers: int
    simulator: bool
    console: bool
    admin_email: str
    cluster: bool

    def build_addresses(self, listeners: Sequence[servers.NatsListeners]) -> Addresses:
        """Return the client addresses on this machine; `listeners` are those of NATS."""
        http, websocket = ("https", "wss") if self.tls else ("http", "ws")
        host = ports.reachable_host(self.host)
        mqtt_ws, certificates = self.websocket_port, self.certificate_port
        nats_certificates = self.certificate_nats_port
        return Addresses(
            base_url=f"{http}://{host}:{self.port}",
            mqtt_url=",".join(listener.mqtt_url for listener in listeners),
            nats_url=",".join(listener.url for listener in listeners),
            ca_file=str(self.data / "tls" / "ca.pem") if self.tls else "",
            websocket_url=f"{websocket}://{host}:{mqtt_ws}/mqtt" if mqtt_ws else "",
            certificate_url=f"mqtts://{host}:{certificates}" if certificates else "",
            certificate_nats_url=f"tls://{host}:{nats_certificates}" if nats_certificates else "",
        )


def up(arguments: Namespace) -> Exit:
    """Run the platform until SIGINT or SIGTERM.

    Raises `LauncherError` with exit code 2 if a program, the data directory or a port prevents the
    start, and with exit code 1 if a process does not become ready.
    """
    options = read_options(arguments)
    if os.environ.get(END_WITH_PARENT_VARIABLE):
        end_with_parent()
    server_programs = servers.ServerPrograms.find()
    handle = lock.acquire(options.data)
    if (options.data / lock.RESTORE_MARKER).exists():
        raise LauncherError(
            f"a restore into {options.data} was interrupted: empty the directory and restore again"
        )
    ports.require_free(options.host, open_ports_by_option(read_ports(arguments)))
    asyncio.run(Launcher(options, server_programs, handle).run())
    return Exit.OK


def read_options(options: Namespace) -> UpOptions:
    """Return the parsed options of `thingway up`."""
    values = {field.name: getattr(options, field.name) for field in fields(UpOptions)}
    return UpOptions(**(values | read_ports(options)))


def _create_fork_server(logs: Path, lock_handle: int) -> ForkServer | None:
    """Return the fork server of all services; None on systems other than Linux."""
    if sys.platform != "linux":
        return None
    modules = [*(service.module for service in SERVICES), simulator.__name__]
    return ForkServer(modules, system_environment(os.environ), logs, (lock_handle,))


class Launcher:
    """One run of the platform."""

    def __init__(
        self,
        options: UpOptions,
        server_programs: servers.ServerPrograms,
        lock_handle: int,
        hosts: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`hosts` maps each cluster member's host to a command prefix for its servers.

        By default all members listen on loopback.
        """
        self._options = options
        self._prefixes = tuple(hosts.values())
        self._found = server_programs
        self._directory = options.data
        self._state = states.load(self._directory)
        if options.cluster or self._state.is_cluster:
            self._state.hosts = list(hosts) or [ports.LOOPBACK] * servers.CLUSTER_SIZE
        console.adopt_console_client(self._state, os.environ)
        self._base = inheritable_environment(os.environ)
        self.service_environment = dict(self._base)
        """Environment of every service, apart from its settings."""
        if not options.console:
            self.service_environment["THINGWAY_CONSOLE"] = "off"
        self._certificates = (
            CertificateFiles.prepare(options.data, self._state, options.host, options.tls_name)
            if options.tls
            else None
        )
        self._is_ready = False
        self._progress = StartProgress(Console(file=sys.stdout))
        logs = create_private_directory(self._directory / "logs")
        self._fork_server = _create_fork_server(logs, lock_handle)
        self._supervisor = Supervisor(
            logs,
            print_line=self._progress.print_line,
            changed=self._write_ready,
            keep_open=(lock_handle,),
            fork_server=self._fork_server,
        )

    async def run(self) -> None:
        """Start everything, wait for a signal, stop everything in order."""
        stop = self._stop_on_signals()
        ready.remove(self._directory)
        start = asyncio.create_task(self._start())
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                await self._serve_until(stop)
        finally:
            self._progress.print_line("stopping")
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            self._is_ready = False
            ready.remove(self._directory)
            await self._supervisor.stop()

    async def _serve_until(self, stop: asyncio.Task[bool]) -> None:
        """Wait for `stop`; meanwhile renew certificates and restart stuck nats-servers."""
        jobs = [
            self._restart_when_stuck(number, address)
            for number, address in enumerate(self._addresses().split_by_nats_server(), 1)
        ]
        if self._certificates is not None:
            jobs.append(self._certificates.renew_forever(self._reload_certificates))
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await stop
        finally:
            for task in tasks:
                task.cancel()

    def _restart_when_stuck(self, number: int, address: Addresses) -> Coroutine[Any, Any, None]:
        password = self._state.secrets[f"nats.{SYSTEM_USER}"]
        name = states.member_name(servers.NATS, number)
        return jetstream.restart_when_stuck(
            partial(
                jetstream.is_stuck, address, password, servers.nats_server_name(self._state, number)
            ),
            partial(jetstream.measure_free_bytes, self._directory / name),
            partial(self._restart_nats, name),
        )

    def _reload_certificates(self) -> None:
        """Make nats-server read its certificate again; the gateway polls the file."""
        for number in range(1, len(self._state.hosts) + 1):
            self._supervisor.signal(states.member_name(servers.NATS, number), signal.SIGHUP)

    def _restart_nats(self, name: str) -> None:
        self._progress.print_line(
            f"{name} could not write; the disk has space again: restarting it"
        )
        self._supervisor.restart(name)

    def _stop_on_signals(self) -> asyncio.Task[bool]:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, stop.set)
        return asyncio.create_task(stop.wait())

    async def _start(self) -> None:
        self._claim_ports()
        self._state.addresses = addresses = self._addresses()
        context = servers.ServerContext(self._directory, self._state, self._base, self._prefixes)
        server_list = servers.prepare_servers(self._found, context, self._listeners(), addresses)
        specs = self._service_specs_and_ready_urls(addresses)
        self._save()
        async with self._progress.live_table():
            await run_concurrently(
                [
                    self._start_fork_server(),
                    *(self._start_and_wait(each.spec, each.ready) for each in server_list),
                ]
            )
            await self._prepare_streams()
            await run_concurrently(
                [
                    self._start_and_wait(spec, partial(wait_until_ready, url, addresses.ca_file))
                    for spec, url in specs
                ]
            )
            await self._progress.follow(
                "first data",
                bootstrap(self._state, addresses, self._options.admin_email, self._save),
            )
        if self._options.simulator:
            self._supervisor.start(self._simulator_spec(addresses))
        self._is_ready = True
        self._write_ready()
        self._progress.print_line(format_summary(self._state, self._directory))

    def _listeners(self) -> list[servers.NatsListeners]:
        """Return the listeners of the NATS servers."""
        options = self._options
        tls = self._certificates.tls_files if self._certificates else None
        first = servers.NatsListeners(
            options.host, options.nats_port, options.mqtt_port, options.websocket_port, tls
        )
        return first.build_for_members(self._state)

    def _addresses(self) -> Addresses:
        return self._options.build_addresses(self._listeners())

    async def _prepare_streams(self) -> None:
        """Prepare streams before services start.

        A cluster adopts the streams of a server that ran alone before. A single server gets the
        streams that no service reads in memory.
        """
        address = self._addresses().split_by_nats_server()[0]
        password = self._state.secrets[f"nats.{ADMIN_USER}"]
        if not self._state.is_cluster:
            await jetstream.keep_mqtt_streams_in_memory(address, password)
            return
        await jetstream.adopt_streams(
            self._directory / servers.NATS,
            address,
            password,
            servers.nats_server_name(self._state, 1),
            servers.CLUSTER_SIZE,
        )

    async def _start_fork_server(self) -> None:
        if self._fork_server is not None:
            with suppress(OSError):  # the supervisor reports it and starts services alone
                await self._progress.follow(fork_server.PROCESS_NAME, self._fork_server.start())

    async def _start_and_wait(
        self, spec: ProcessSpec, ready_check: Callable[[], Awaitable[None]]
    ) -> None:
        child = self._supervisor.start(spec)
        await self._progress.follow(spec.name, wait_ready(child, ready_check))

    def _claim_ports(self) -> None:
        if self._state.is_cluster:
            servers.record_redis_primary(self._directory, self._state)
        self._state.claim_ports(
            [*servers.server_port_names(self._state), *services.internal_service_names()],
            reserved={
                port
                for name in DEFAULT_PLAIN_AND_TLS_PORTS_BY_LISTENER
                if (port := getattr(self._options, name))
            },
        )

    def _service_specs_and_ready_urls(self, addresses: Addresses) -> list[tuple[ProcessSpec, str]]:
        """Return every service process with the URL of its readiness check."""
        endpoints = Endpoints(
            self._options.host,
            self._options.port,
            addresses.base_url,
            addresses.nats_url,
            addresses.mqtt_url,
            ",".join(filter(None, (addresses.mqtt_url, addresses.certificate_url))),
            certificate_port=self._options.certificate_port or 0,
            certificate_nats_port=self._options.certificate_nats_port or 0,
            ca_file=addresses.ca_file,
            tls=self._certificates.tls_files if self._certificates else None,
            device_ca_file=str(self._certificates.device_ca_file) if self._certificates else "",
        )
        specs = []
        for service in SERVICES:
            port = services.service_port(service, self._state, endpoints)
            public = service.name == PUBLIC_SERVICE
            url = addresses.base_url if public else f"http://{ports.LOOPBACK}:{port}"
            environment = services.build_environment(service, self._state, endpoints)
            specs += [
                (self._service_spec(service, n, environment), url)
                for n in self._process_numbers(service)
            ]
        return specs

    def _process_numbers(self, service: Service) -> range:
        return range(1, 1 + (self._options.workers if service.scaled else 1))

    def _service_spec(
        self, service: Service, number: int, environment: dict[str, str]
    ) -> ProcessSpec:
        return ProcessSpec(
            name=states.member_name(service.name, number),
            argv=[sys.executable, "-m", service.module],
            stage=_SERVICE_STAGE,
            environment=self.service_environment | environment,
            forked=True,
        )

    def _simulator_spec(self, addresses: Addresses) -> ProcessSpec:
        device = self._state.device
        if device is None or device.key is None:
            raise AssertionError("the bootstrap creates a device with a key")
        return ProcessSpec(
            name="simulator",
            argv=[sys.executable, "-m", simulator.__name__],
            stage=_SERVICE_STAGE,
            environment=self._base
            | simulator.build_environment(
                addresses.mqtt_url, addresses.ca_file, device.sn, device.key
            ),
            forked=True,
        )

    def _save(self) -> None:
        states.save(self._directory, self._state)

    def _write_ready(self) -> None:
        """Write `ready.json`; a full disk is reported and does not end the supervision."""
        if not self._is_ready:
            return
        try:
            ready.write(self._directory, self._supervisor.pids())
        except (OSError, LauncherError) as error:
            self._progress.print_line(f"cannot write {self._directory / ready.FILE_NAME}: {error}")
