"""Clients of a process of `workflow`; the launcher imports only `settings`."""

from libs.common import process
from libs.common.bus import Bus, RpcServer, Wakeups
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.workflow.settings import WorkflowSettings


class Clients(process.ProcessClients[WorkflowSettings]):
    """The clients that all packages of a process share."""

    def __init__(
        self, settings: WorkflowSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus
    ) -> None:
        """Use connections to MongoDB and NATS."""
        super().__init__(settings, telemetry, mongo, bus)
        self.wakeups = Wakeups(bus, "workflow")
        self.server = RpcServer(bus, "workflow")
