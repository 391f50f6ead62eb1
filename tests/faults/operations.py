"""What was asked of the platform, what came of it, and what the stores say to that."""

import time
from dataclasses import dataclass, field


@dataclass
class Operations:
    """Counts of operations: each is acknowledged, refused, or nobody knows."""

    invoked: int = 0
    acknowledged: int = 0
    refused: int = 0
    last: float = 0.0
    """Time of the last acknowledgement (monotonic)."""

    @property
    def unknown(self) -> int:
        """Return how many operations have an unknown result."""
        return self.invoked - self.acknowledged - self.refused

    def acknowledge(self) -> None:
        """Count one that the platform has promised."""
        self.invoked += 1
        self.acknowledged += 1
        self.last = time.monotonic()

    def unanswered(self, *, refused: bool) -> None:
        """Count one without a promise."""
        self.invoked += 1
        self.refused += refused

    def add(self, other: "Operations") -> None:
        """Add the counts of others."""
        self.invoked += other.invoked
        self.acknowledged += other.acknowledged
        self.refused += other.refused


@dataclass
class Verdict:
    """The differences from the promised data; empty if there are none."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Add what another one found."""
        self.lost += other.lost
        self.doubled += other.doubled
