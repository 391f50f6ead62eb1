"""Runs the built-in integrations that work by themselves: each in one replica at a time."""

from libs.common.bus import Bus, RpcClient
from libs.common.integrations import IntegrationHost, IntegrationThings
from libs.common.store.lease import Leader
from libs.common.store.mongo import Database
from services.management.integrations.builtin.simulator.integration import Simulator
from services.management.integrations.builtin.simulator.messages import told_of_changes

LIFE = 4.0
"""Seconds after which another replica takes over from one that is gone."""


class Hosting:
    """The hosts, begun anew wherever the lease goes."""

    def __init__(self, database: Database, bus: Bus, client: RpcClient) -> None:
        self._bus = bus
        self._client = client
        self.leaders = [
            Leader(database, "integration-simulator", self._simulate, life=LIFE),
        ]

    async def _simulate(self) -> None:
        simulator = Simulator(IntegrationThings(self._client, Simulator.manifest.id))
        async with (
            told_of_changes(self._bus, simulator),
            IntegrationHost(self._bus, simulator),
        ):
            await simulator.run()
