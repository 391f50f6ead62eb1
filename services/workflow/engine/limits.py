"""How much one process runs, and for how long."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one process; those of tenants are `contracts.limits.Limits`."""

    running: int = 256
    """Runs at a time; more wait."""
    waiting: int = 20_000
    """Runs that wait; more are refused."""
    run_seconds: float = 300.0
    """How long a run may take."""
    node_seconds: float = 60.0
    """How long a node may take."""
