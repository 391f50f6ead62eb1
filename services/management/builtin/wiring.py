"""Wiring of the built-in integrations."""

from dataclasses import dataclass
from functools import partial

from libs.common.bus import Bus, RawRequest, RpcClient, RpcServer
from libs.common.http.outgoing import create_outgoing_session
from libs.common.identity.seal import Seal
from libs.common.integrations import IntegrationHost, IntegrationThings
from libs.common.store.lease import Job, Leader
from libs.common.store.mongo import Database
from services.management.builtin.direct import Direct, System
from services.management.builtin.openapi_client.accounts import RemoteAccounts
from services.management.builtin.openapi_client.commands import CommandForwarder
from services.management.builtin.openapi_client.integration import OpenApiClient
from services.management.builtin.openapi_client.remote import RemotePlatform
from services.management.builtin.openapi_client.store import OpenApiStore
from services.management.builtin.simulator import Simulator, subscribe_to_device_changes
from services.management.integrations import IntegrationRegistry
from services.management.networks.chirpstack import ChirpStack
from services.management.networks.milesight import Milesight
from services.management.networks.server import NetworkServer
from services.management.networks.store import NetworkStore
from services.management.networks.the_things_stack import TheThingsStack
from services.management.networks.webhook import Webhook

NETWORK_SERVERS: tuple[type[NetworkServer], ...] = (ChirpStack, TheThingsStack, Milesight, Webhook)
LEASE_SECONDS = 4.0
"""Seconds after which another replica takes over the integrations of a stopped one."""
REQUEST_TIMEOUT_SECONDS = 8.0
"""Seconds to wait for another platform, because users wait for the answer."""


@dataclass(frozen=True)
class BuiltInIntegrations:
    """The built-in integrations: `hosts` run in each replica, `leader` in one of them."""

    hosts: tuple[IntegrationHost, ...]
    leader: Leader


def wire(
    *,
    database: Database,
    bus: Bus,
    rpc_client: RpcClient,
    registry: IntegrationRegistry,
    seal: Seal,
    allowed_networks: tuple[str, ...],
) -> BuiltInIntegrations:
    """Construct the integrations; they may call public addresses and `allowed_networks`.

    They announce themselves to `registry`, without messages on the bus.
    """
    host = partial(IntegrationHost, bus, announce=registry.announce_from_this_process)
    open_api_store = OpenApiStore(database, seal)

    async def simulate() -> None:
        simulator = Simulator(IntegrationThings(rpc_client, Simulator.manifest.id))
        async with subscribe_to_device_changes(bus, simulator), host(simulator):
            await simulator.run()

    async def serve_open_api() -> None:
        things = IntegrationThings(rpc_client, OpenApiClient.manifest.id)
        async with create_outgoing_session(allowed_networks, REQUEST_TIMEOUT_SECONDS) as session:
            accounts = RemoteAccounts(
                things, open_api_store, partial(RemotePlatform, session), allowed_networks
            )
            carrier = CommandForwarder(things, open_api_store, accounts)
            integration = OpenApiClient(things, open_api_store, accounts, carrier)
            async with host(integration):
                await integration.run()

    async def serve_network(kind: type[NetworkServer]) -> None:
        things = IntegrationThings(rpc_client, kind.manifest.id)
        server = kind(things, NetworkStore(database, seal, kind.manifest.id), allowed_networks)
        hooks = RpcServer(bus, f"integration.{kind.manifest.id}", discovered=False)
        hooks.offer("hook", RawRequest, server.receive_hook)
        async with host(server):
            await hooks.start()
            try:
                await server.run()
            finally:
                await hooks.stop()

    jobs: dict[str, Job] = {
        Simulator.manifest.id: simulate,
        OpenApiClient.manifest.id: serve_open_api,
        **{kind.manifest.id: partial(serve_network, kind) for kind in NETWORK_SERVERS},
    }
    return BuiltInIntegrations(
        hosts=(host(System()), host(Direct())),
        leader=Leader(database, "integrations", jobs, life=LEASE_SECONDS),
    )
