"""Runs the built-in integrations that work by themselves, in one replica at a time."""

from functools import partial

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.frames import HookCall
from libs.common.http.outgoing import outgoing_session
from libs.common.identity.seal import Seal
from libs.common.integrations import IntegrationHost, IntegrationThings
from libs.common.store.lease import Job, Leader
from libs.common.store.mongo import Database
from services.management.builtin.networks.chirpstack.integration import ChirpStack
from services.management.builtin.networks.milesight.integration import Milesight
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.store import NetworkStore
from services.management.builtin.networks.tts.integration import TheThingsStack
from services.management.builtin.networks.webhook.integration import Webhook
from services.management.builtin.openapi_client.accounts import Accounts
from services.management.builtin.openapi_client.commands import CommandCarrier
from services.management.builtin.openapi_client.integration import OpenApiClient
from services.management.builtin.openapi_client.remote import Remote
from services.management.builtin.openapi_client.store import OpenApiStore
from services.management.builtin.simulator.integration import Simulator
from services.management.builtin.simulator.messages import told_of_changes

NETWORKS: tuple[type[NetworkServer], ...] = (ChirpStack, TheThingsStack, Milesight, Webhook)
LIFE = 4.0
"""Seconds after which another replica takes over from one that is gone."""
REQUEST_SECONDS = 8.0
"""Seconds that another platform has for an answer; people wait for some of them."""


class Hosting:
    """The hosts, begun anew wherever the lease goes."""

    def __init__(
        self,
        database: Database,
        bus: Bus,
        client: RpcClient,
        *,
        seal: Seal,
        allowed: tuple[str, ...],
    ) -> None:
        """`allowed` are networks that may be called though they are not public."""
        self._seal = seal
        self._database = database
        self._bus = bus
        self._client = client
        self._allowed = allowed
        jobs: dict[str, Job] = {
            Simulator.manifest.id: self._simulate,
            OpenApiClient.manifest.id: self._serve_open_api,
            **{one.manifest.id: partial(self._serve_network, one) for one in NETWORKS},
        }
        self.leader = Leader(database, "integrations", jobs, life=LIFE)

    async def _simulate(self) -> None:
        simulator = Simulator(IntegrationThings(self._client, Simulator.manifest.id))
        async with (
            told_of_changes(self._bus, simulator),
            IntegrationHost(self._bus, simulator),
        ):
            await simulator.run()

    async def _serve_open_api(self) -> None:
        things = IntegrationThings(self._client, OpenApiClient.manifest.id)
        store = OpenApiStore(self._database, self._seal)
        async with outgoing_session(self._allowed, REQUEST_SECONDS) as session:
            accounts = Accounts(things, store, partial(Remote, session), self._allowed)
            carrier = CommandCarrier(things, store, accounts)
            integration = OpenApiClient(things, store, accounts, carrier)
            async with IntegrationHost(self._bus, integration):
                await integration.run()

    async def _serve_network(self, kind: type[NetworkServer]) -> None:
        things = IntegrationThings(self._client, kind.manifest.id)
        store = NetworkStore(self._database, self._seal, kind.manifest.id)
        server = kind(things, store, self._allowed)
        hooks = RpcServer(self._bus, f"integration.{kind.manifest.id}", discovered=False)
        hooks.offer("hook", HookCall, server.hook)
        async with IntegrationHost(self._bus, server):
            await hooks.start()
            try:
                await server.run()
            finally:
                await hooks.stop()
