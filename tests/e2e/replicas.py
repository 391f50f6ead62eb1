"""A second process of every service that users reach, beside those of the platform."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

import httpx

from deploy.local.fork_server import ForkServer
from deploy.local.process import ProcessSpec, inheritable_environment, system_environment, terminate
from deploy.platform import ports, services
from deploy.platform.services import Endpoints, build_environment
from tests.contract.console import Console
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

TURNS = 2
"""How often each change is made and taken back, by either replica in turn."""


@contextlib.asynccontextmanager
async def replicas(platform: Platform) -> AsyncIterator[str]:
    """Start a second process of every service that users reach; give the second gateway's URL."""
    state, served = platform.state, [one for one in services.SERVICES if one.upstream]
    gateway = next(one for one in services.SERVICES if one.name == services.PUBLIC_SERVICE)
    assert state.addresses is not None
    endpoints = Endpoints(
        "127.0.0.1",
        ports.claim_random(),
        platform.base_url,
        state.addresses.nats_url,
        state.addresses.mqtt_url,
    )
    state.ports |= {one.name: ports.claim_random() for one in served}
    logs, started = platform.directory.parent, (*served, gateway)
    modules = [service.module for service in started]
    fork_server, children = ForkServer(modules, system_environment(os.environ), logs), []
    try:
        for service in started:
            spec = ProcessSpec(
                name=service.name,
                argv=[sys.executable, "-m", service.module],
                stage=0,
                environment=inheritable_environment(os.environ)
                | build_environment(service, state, endpoints),
            )
            children.append(await fork_server.fork(spec, logs / "replicas.log"))
        url = f"http://127.0.0.1:{endpoints.port}"
        await until(lambda: _ready(url), 120)
        yield url
    finally:
        await asyncio.gather(*(terminate(child, 10) for child in children))
        await fork_server.stop()


async def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        async with httpx.AsyncClient(verify=False) as http:
            return (await http.get(f"{url}/readyz")).status_code == 200
    return False


class Replicas:
    """The super-admin at the platform's gateway and at the second one."""

    def __init__(self, admins: list[Console]) -> None:
        self.admins = admins

    def turns(self) -> list[tuple[Console, Console]]:
        """Return pairs: the replica that makes a change, and the one that is asked first."""
        first, second = self.admins
        return [(first, second), (second, first)] * (TURNS // 2)

    async def statuses(self, asked: Console, token: str, path: str) -> set[int]:
        """Return the statuses of a GET at both replicas, the unchanged one first."""
        order = sorted(self.admins, key=lambda admin: admin is not asked)
        return {(await admin.ask("GET", path, token=token)).status_code for admin in order}
