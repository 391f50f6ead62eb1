"""Settings of `workflow`."""

from dataclasses import dataclass
from typing import Annotated

import msgspec

from libs.common.settings import Count, Days, KeyText, StoreSettings

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@dataclass(frozen=True, kw_only=True)
class WorkflowSettings(StoreSettings):
    """Settings of `workflow`."""

    secrets_key: KeyText
    """Key (32 bytes, base64url) that encrypts secrets of flows and credentials."""
    flow_runs: Count = 256
    """Maximum concurrent runs of flows per process; one tenant may use half of them."""
    flow_runs_waiting: Count = 20_000
    """Maximum waiting runs of flows per process; one tenant may use half of them."""
    flow_run_seconds: Seconds = 300.0
    """Maximum seconds of a run of a flow."""
    flow_node_seconds: Seconds = 60.0
    """Maximum seconds of one node of a flow."""
    flow_failures: Count = 50
    """Consecutive failed runs in one process after which a flow is disabled."""
    flow_log_days: Days = 30
    """Retention of the logs of flows in days."""
    flow_log_entries: Count = 10_000
    """Maximum runs in the log of one flow, in addition to those of the last ten minutes."""
    code_processes: Count = 4
    """Processes per replica and language that run code of users; one tenant may use half of
    them."""
    outgoing_networks: str = ""
    """Non-public networks that flows and notifications may call, separated by commas
    (`10.1.0.0/16,127.0.0.1`). With the entry `only`, public addresses outside of these networks are
    blocked (`only,203.0.113.0/24`)."""
