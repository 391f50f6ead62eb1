"""A network server's broker (NATS's MQTT with TLS), and an integration beside it."""

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from deploy.local import programs
from deploy.platform import ports
from libs.common.bus import Bus, RpcClient
from libs.common.contracts.frames import (
    DeviceFrame,
    Downlink,
    FramesAnswer,
    QueueDownlinks,
    RefusedFrame,
    SendDownlinkState,
    SendFrames,
    SendLinkState,
)
from libs.common.contracts.integrations import Acknowledged, DeviceRef
from libs.common.errors import Unavailable
from libs.common.identity import generate_keys
from libs.common.identity.seal import Seal
from libs.common.integrations import IntegrationHost, IntegrationThings
from libs.common.jobs import run_in_background
from libs.common.store.migrations import migrate
from services.management.migrations import MIGRATIONS
from services.management.networks.server import NetworkServer
from services.management.networks.store import NetworkStore
from tests.certificates import Files
from tests.integration.management.played import PlayedDevice
from tests.integration.workflow.outgoing.conftest import wait_for

LOCAL = ("127.0.0.0/8", "::1/128")
USER, PASSWORD = "app1@ttn", "right password"
CONFIG = """
listen: "127.0.0.1:{port}"
server_name: broker
jetstream {{ store_dir: "{folder}" }}
mqtt {{
  listen: "127.0.0.1:{mqtt}"
  ack_wait: "1s"
  {tls}
}}
authorization {{ users: [
  {{ user: "{user}", password: "{password}" }},
  {{ user: "narrow", password: "{password}", permissions: {{ subscribe: ["$MQTT.>"] }} }},
] }}
"""


@dataclass
class ServerBroker:
    """A broker, and whom to trust for its certificate."""

    port: int
    files: Files

    @property
    def settings(self) -> dict[str, Any]:
        """As people set them."""
        return {
            "broker": f"mqtts://localhost:{self.port}",
            "username": USER,
            "password": PASSWORD,
            "ca": self.files.ca_file.read_text(),
        }

    @asynccontextmanager
    async def client(self) -> AsyncIterator[aiomqtt.Client]:
        """A connection of the network server's own."""
        tls = aiomqtt.TLSParameters(ca_certs=str(self.files.ca_file))
        async with aiomqtt.Client(
            "localhost", self.port, username=USER, password=PASSWORD, tls_params=tls
        ) as client:
            yield client


@contextmanager
def running_broker(folder: Path, *, verify: bool = False) -> Iterator[ServerBroker]:
    """A broker with logins and a certificate of its own authority; with `verify` it asks for one.

    The user `narrow` may hear nothing.
    """
    port, mqtt = ports.claim_random(), ports.claim_random()
    files = Files(folder / "certificates")
    asks = f', ca_file: "{files.ca_file}", verify: true' if verify else ""
    tls = f'tls {{ cert_file: "{files.certificate_file}", key_file: "{files.key_file}"{asks} }}'
    config = folder / "nats.conf"
    config.write_text(
        CONFIG.format(port=port, mqtt=mqtt, folder=folder, user=USER, password=PASSWORD, tls=tls)
    )
    log = folder / "log"
    process = subprocess.Popen([programs.find_program(programs.NATS).path, "-c", config, "-l", log])
    wait_for(mqtt)
    try:
        yield ServerBroker(mqtt, files)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[ServerBroker]:
    """One for the tests of a module."""
    with running_broker(tmp_path_factory.mktemp("broker")) as made:
        yield made


class PlayedNetwork(PlayedDevice):
    """`device`, which is told frames."""

    def __init__(self, bus: Bus, integration: str) -> None:
        super().__init__(bus, integration)
        self.frames: list[DeviceFrame] = []
        self.links: list[SendLinkState] = []
        self.downlinks: list[SendDownlinkState] = []
        self.away = False
        self._rpc.offer_each("frames", SendFrames, self._frames)
        self._rpc.offer_each("link", SendLinkState, self._link)
        self._rpc.offer_each("downlink", SendDownlinkState, self._downlink)

    async def _frames(self, who: str, told: SendFrames) -> FramesAnswer:
        if self.away:
            raise Unavailable("away")
        known = {(one.tenant, one.identifier) for one in self.devices.values()}
        refused = []
        for index, one in enumerate(told.frames):
            if (one.tenant, one.identifier) in known:
                self.frames.append(one)
            else:
                reason = f"{who} has no device {one.identifier}"
                refused.append(RefusedFrame(index=index, reason=reason))
        self._told.set()
        return FramesAnswer(refused)

    async def _link(self, who: str, told: SendLinkState) -> Acknowledged:
        self._find(who, told.tenant, told.identifier)
        self.links.append(told)
        self._told.set()
        return Acknowledged()

    async def _downlink(self, who: str, told: SendDownlinkState) -> Acknowledged:
        self.downlinks.append(told)
        self._told.set()
        return Acknowledged()

    async def shows(self, **wanted: Any) -> dict[str, Any]:
        """Wait until the integration shows these states."""

        def shown() -> Any:
            own = self.own.get("default", {})
            return own if wanted.items() <= own.items() else None

        return await self.until(shown)

    async def carry(self, device: DeviceRef, *downlinks: Downlink) -> None:
        """Give downlinks to the integration."""
        wanted = QueueDownlinks(device=device, downlinks=list(downlinks))
        await self.ask("downlink", wanted, Acknowledged)


Hosted = Callable[[type[NetworkServer]], Any]


@pytest.fixture
def hosted(servers, emptied, mongo_of) -> Hosted:
    """Hosts an integration, with `device` played."""

    @asynccontextmanager
    async def host(kind: type[NetworkServer]) -> AsyncIterator[PlayedNetwork]:
        mongo = mongo_of(emptied("management"))
        await migrate(mongo.database, MIGRATIONS)
        bus = await Bus.connect(servers.nats_url, name="management", stream_replicas=1)
        played_bus = await Bus.connect(servers.nats_url, name="device")
        played = PlayedNetwork(played_bus, kind.manifest.id)
        await played.start()
        things = IntegrationThings(RpcClient(bus), kind.manifest.id)
        store = NetworkStore(mongo.database, Seal(generate_keys()[1]), kind.manifest.id)
        server = kind(things, store, LOCAL)
        try:
            async with IntegrationHost(bus, server), run_in_background(server.run()):
                yield played
        finally:
            await played.stop()
            await bus.drain()
            await played_bus.drain()

    return host
