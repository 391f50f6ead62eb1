"""Bytes that wait for sockets which do not keep up, bounded by tenant."""

from opentelemetry import metrics

TENANT_BYTES = 16 * 1024**2
"""Bytes that wait for all sockets of a tenant in a process; beyond them each keeps one frame, and
the latest value of each key."""

_overflow = metrics.get_meter("thingway").create_counter(
    "thingway_live_overflow",
    description="Frames and changes merged or skipped as a WebSocket did not keep up, by tenant",
)


class QueuedBytes:
    """Counts what waits for the sockets of one tenant."""

    __slots__ = ("__weakref__", "_tenant", "size")

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self.size = 0

    @property
    def full(self) -> bool:
        """Whether more must wait than a tenant may have."""
        return self.size > TENANT_BYTES

    def note_overflow(self, number: int = 1) -> None:
        """Count frames or changes that found no room."""
        _overflow.add(number, {"tenant": self._tenant})
