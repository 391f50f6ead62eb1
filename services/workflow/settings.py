"""Settings of `workflow`, and the clients that its packages share."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from libs.common import process
from libs.common.bus import Bus, RpcServer
from libs.common.settings import Count, Days, Key, StoreSettings
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(StoreSettings):
    """What the service is told."""

    secrets_key: Key
    """Key (32 bytes, base64url) of the secrets in the designs of flows."""
    flow_runs: Count = 256
    """Runs of flows at a time in one process; more wait, and one tenant leaves half to others."""
    flow_runs_waiting: Count = 20_000
    """Runs of flows that wait in one process; one tenant leaves half to others."""
    flow_run_seconds: Seconds = 300.0
    """Seconds that a run of a flow may take."""
    flow_node_seconds: Seconds = 60.0
    """Seconds that one node of a flow may take."""
    flow_failures: Count = 50
    """Failed runs one after the other, seen by one process, after which a flow is disabled."""
    flow_log_days: Days = 30
    """Days for which the logs of flows are kept."""
    flow_log_entries: Count = 10_000
    """Runs that the log of one flow keeps; those of the last ten minutes stay in any case."""
    code_processes: Count = 4
    """Processes of a replica that run people's code, for each language; one tenant leaves half to
    others."""
    outgoing_networks: str = ""
    """Networks that are not public and that people may have the platform call all the same,
    separated by commas (`10.1.0.0/16,127.0.0.1`)."""


class Clients(process.Clients[WorkflowSettings]):
    """What all packages of a process share."""

    def __init__(
        self, settings: WorkflowSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus
    ) -> None:
        """Take connections to MongoDB and NATS."""
        super().__init__(settings, telemetry, mongo, bus)
        self.server = RpcServer(bus, "workflow")
