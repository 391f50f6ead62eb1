"""`thingway up`: the whole platform on one machine, until Ctrl-C."""

import asyncio
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from deploy.local import jetstream, lock, servers, simulator
from deploy.local.backups import RESTORING
from deploy.local.options import given_ports, port_options
from deploy.local.process import Spec, base_environment, end_with_parent
from deploy.local.progress import Progress, summary
from deploy.local.supervisor import Supervisor, together, until_ready
from deploy.platform import console, ports, ready, services
from deploy.platform import state as states
from deploy.platform.bootstrap import bootstrap
from deploy.platform.certificates import Certificates
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.files import make_private_directory
from deploy.platform.nats_grants import ADMIN, SYSTEM_USER
from deploy.platform.openapi import until_serving
from deploy.platform.services import PUBLIC_SERVICE, SERVICES, Doors, Service
from deploy.platform.state import Addresses

END_WITH_PARENT = "THINGWAY_END_WITH_PARENT"
"""Set by the Makefile: a make that is killed takes the launcher with it."""
_SERVICE_STAGE = 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `thingway up` was asked for."""

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

    def addresses(self, doors: Sequence[servers.NatsDoors]) -> Addresses:
        """Where clients on this machine will find the platform; `doors` are NATS's."""
        http, websocket = ("https", "wss") if self.tls else ("http", "ws")
        host = ports.reachable(self.host)
        mqtt_ws, certificates = self.websocket_port, self.certificate_port
        nats_certificates = self.certificate_nats_port
        return Addresses(
            base_url=f"{http}://{host}:{self.port}",
            mqtt_url=",".join(door.mqtt_url for door in doors),
            nats_url=",".join(door.url for door in doors),
            ca_file=str(self.data / "tls" / "ca.pem") if self.tls else "",
            websocket_url=f"{websocket}://{host}:{mqtt_ws}/mqtt" if mqtt_ws else "",
            certificate_url=f"mqtts://{host}:{certificates}" if certificates else "",
            certificate_nats_url=f"tls://{host}:{nats_certificates}" if nats_certificates else "",
        )


def up(given: Namespace) -> Exit:
    """Run the platform until SIGINT or SIGTERM.

    Raises `LauncherError` with exit code 2 when a program, the data directory or a port
    does not allow a start, with exit code 1 when something does not become ready.
    """
    options = options_of(given)
    if os.environ.get(END_WITH_PARENT):
        end_with_parent()
    found = servers.Programs.find()
    handle = lock.acquire(options.data)
    if (options.data / RESTORING).exists():
        raise LauncherError(
            f"a restore into {options.data} has not come to its end: empty it and begin again"
        )
    ports.require_free(options.host, port_options(given_ports(given)))
    asyncio.run(Launcher(options, found, handle).run())
    return Exit.OK


def options_of(given: Namespace) -> Options:
    """What the words of `thingway up` ask for."""
    asked = {one.name: getattr(given, one.name) for one in fields(Options)}
    return Options(**(asked | given_ports(given)))


class Launcher:
    """One run of the platform."""

    def __init__(
        self,
        options: Options,
        found: servers.Programs,
        lock_handle: int,
        places: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`places` are hosts for the members of a cluster, each with the command that runs
        servers there; by default they are on loopback."""
        self._options = options
        self._inside = tuple(places.values())
        self._found = found
        self._directory = options.data
        self._state = states.load(self._directory)
        if options.cluster or self._state.is_cluster:
            self._state.hosts = list(places) or [ports.LOOPBACK] * servers.CLUSTER
        console.adopt_client(self._state, os.environ)
        self._base = base_environment(os.environ)
        self.service_environment = dict(self._base)
        if not options.console:
            self.service_environment["THINGWAY_CONSOLE"] = "off"
        """What every service is given, besides its settings."""
        self._certificates = (
            Certificates.prepared(options.data, self._state, options.host, options.tls_name)
            if options.tls
            else None
        )
        self._is_ready = False
        self._progress = Progress(Console(file=sys.stdout))
        self._supervisor = Supervisor(
            make_private_directory(self._directory / "logs"),
            say=self._progress.say,
            changed=self._write_ready,
            keep_open=(lock_handle,),
        )

    async def run(self) -> None:
        """Start everything, wait for a signal, end everything in order."""
        stop = self._stop_on_signals()
        ready.remove(self._directory)
        start = asyncio.create_task(self._start())
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
                await self._serve_until(stop)
        finally:
            self._progress.say("stopping")
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            self._is_ready = False
            ready.remove(self._directory)
            await self._supervisor.stop()

    async def _serve_until(self, stop: asyncio.Task[bool]) -> None:
        """Wait for `stop`; meanwhile tend nats-server when the disk was full, and certificates."""
        tending = [
            self._keep_writing(number, address)
            for number, address in enumerate(self._addresses().apart(), 1)
        ]
        if self._certificates is not None:
            tending.append(self._certificates.follow(self._show_certificate))
        tasks = [asyncio.create_task(one) for one in tending]
        try:
            await stop
        finally:
            for task in tasks:
                task.cancel()

    def _keep_writing(self, number: int, address: Addresses) -> Coroutine[Any, Any, None]:
        password = self._state.secrets[f"nats.{SYSTEM_USER}"]
        name = states.member(servers.NATS, number)
        return jetstream.keep_writing(
            partial(jetstream.is_stuck, address, password, servers.nats_name(self._state, number)),
            partial(jetstream.free_bytes, self._directory / name),
            partial(self._restart_nats, name),
        )

    def _show_certificate(self) -> None:
        """The gateway looks for itself; nats-server reads its files again when it is told to."""
        for number in range(1, len(self._state.hosts) + 1):
            self._supervisor.signal(states.member(servers.NATS, number), signal.SIGHUP)

    def _restart_nats(self, name: str) -> None:
        self._progress.say(f"{name} could not write, and the disk has room: starting it again")
        self._supervisor.restart(name)

    def _stop_on_signals(self) -> asyncio.Task[bool]:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # ignored under nohup
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, asked.set)
        return asyncio.create_task(asked.wait())

    async def _start(self) -> None:
        self._claim_ports()
        self._state.addresses = addresses = self._addresses()
        ground = servers.Ground(self._directory, self._state, self._base, self._inside)
        wanted = servers.embedded(self._found, ground, self._doors(), addresses)
        specs = self._service_specs(addresses)
        self._save()
        async with self._progress.shown():
            await together([self._bring_up(one.spec, one.ready) for one in wanted])
            if self._state.is_cluster:
                await self._grow()
            await together(
                [
                    self._bring_up(spec, partial(until_serving, url, addresses.ca_file))
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
        self._progress.say(summary(self._state, self._directory))

    def _doors(self) -> list[servers.NatsDoors]:
        """Where the NATS servers listen."""
        options = self._options
        tls = self._certificates.server if self._certificates else None
        first = servers.NatsDoors(
            options.host, options.nats_port, options.mqtt_port, options.websocket_port, tls
        )
        return first.of_members(self._state)

    def _addresses(self) -> Addresses:
        return self._options.addresses(self._doors())

    async def _grow(self) -> None:
        """Let the cluster have the streams of a server that was alone until now."""
        await jetstream.adopt(
            self._directory / servers.NATS,
            self._addresses().apart()[0],
            self._state.secrets[f"nats.{ADMIN}"],
            servers.nats_name(self._state, 1),
            servers.CLUSTER,
        )

    async def _bring_up(self, spec: Spec, is_ready: Callable[[], Awaitable[None]]) -> None:
        child = self._supervisor.start(spec)
        await self._progress.follow(spec.name, until_ready(child, is_ready))

    def _claim_ports(self) -> None:
        options = self._options
        if self._state.is_cluster:
            servers.remember_primary(self._directory, self._state)
        self._state.claim_ports(
            [*servers.internal_ports(self._state), *services.internal_port_names()],
            reserved={
                port
                for port in (
                    options.port,
                    options.mqtt_port,
                    options.nats_port,
                    options.websocket_port,
                    options.certificate_port,
                    options.certificate_nats_port,
                )
                if port
            },
        )

    def _service_specs(self, addresses: Addresses) -> list[tuple[Spec, str]]:
        """Every service process with the address that tells when it is ready."""
        doors = Doors(
            self._options.host,
            self._options.port,
            addresses.base_url,
            addresses.nats_url,
            addresses.mqtt_url,
            ",".join(filter(None, (addresses.mqtt_url, addresses.certificate_url))),
            certificate_port=self._options.certificate_port or 0,
            certificate_nats_port=self._options.certificate_nats_port or 0,
            ca_file=addresses.ca_file,
            tls=self._certificates.server if self._certificates else None,
            device_ca_file=str(self._certificates.device_ca_file) if self._certificates else "",
        )
        specs = []
        for service in SERVICES:
            port = services.port_of(service, self._state, doors)
            public = service.name == PUBLIC_SERVICE
            url = addresses.base_url if public else f"http://{ports.LOOPBACK}:{port}"
            environment = services.environment(service, self._state, doors)
            specs += [
                (self._service_spec(service, n, environment), url) for n in self._numbers(service)
            ]
        return specs

    def _numbers(self, service: Service) -> range:
        return range(1, 1 + (self._options.workers if service.scaled else 1))

    def _service_spec(self, service: Service, number: int, environment: dict[str, str]) -> Spec:
        return Spec(
            name=states.member(service.name, number),
            argv=[sys.executable, "-m", service.module],
            stage=_SERVICE_STAGE,
            environment=self.service_environment | environment,
        )

    def _simulator_spec(self, addresses: Addresses) -> Spec:
        device = self._state.device
        if device is None or device.key is None:
            raise AssertionError("the bootstrap ends with a device that has a key")
        return Spec(
            name="simulator",
            argv=[sys.executable, "-m", "deploy.local.simulator"],
            stage=_SERVICE_STAGE,
            environment=self._base
            | simulator.environment(addresses.mqtt_url, addresses.ca_file, device.sn, device.key),
        )

    def _save(self) -> None:
        states.save(self._directory, self._state)

    def _write_ready(self) -> None:
        """Write `ready.json`; a full disk is told and must not end the supervision."""
        if not self._is_ready:
            return
        try:
            ready.write(self._directory, self._supervisor.pids())
        except (OSError, LauncherError) as error:
            self._progress.say(f"cannot write {self._directory / ready.FILE_NAME}: {error}")
