"""Concurrency limits of this process: requests, long polls and WebSockets.

Each is counted for the principal and for its tenant, so that only those who exceed a limit are
rejected. No tenant gets more than three quarters of the process's capacity, regardless of its
limits. Callers without a login are counted by address, by the webhook that they call, and by
service: all together get half of the requests of a service.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from libs.common.contracts.limits import UsageRequest
from libs.common.identity import Principal
from libs.common.limits.tenants import HeldSlots, LimitsCache, SlotCounts, Usage, acquire_slots
from services.gateway.routes import Route

RETRY_SECONDS = 1.0
"""Seconds after which a rejected request may be retried."""
POLL_RETRY_SECONDS = 5.0
"""Seconds after which a rejected poll or WebSocket may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCapacity:
    """Maximum numbers of concurrent uses of this process."""

    requests: int
    """Requests to one service."""
    polls: int
    websockets: int
    address_requests: int
    """Requests without a login per address and per webhook."""


UseKind = Literal["requests", "polls", "websockets"]
"""A concurrent use, named as the limit of a tenant in `Limits`; the limit of a principal has the
prefix `each_`."""


class _UseLimits(NamedTuple):
    """Counts and limits of one concurrent use (`UseKind`)."""

    counts: SlotCounts
    each_name: str
    """Name of the limit per principal, such as `eachPolls`."""
    maximum: int
    """Maximum number for one tenant: three quarters of the process's capacity."""
    retry_seconds: float
    """Seconds after which a rejected caller may retry."""


def _create_use_limits(name: str, capacity: int, retry_seconds: float) -> _UseLimits:
    return _UseLimits(
        SlotCounts(), f"each{name.capitalize()}", max(1, capacity * 3 // 4), retry_seconds
    )


class ConcurrencyLimiter:
    """Limits concurrent requests, polls and WebSockets per caller and tenant."""

    def __init__(self, limits_cache: LimitsCache, bounds: ProcessCapacity) -> None:
        self._known = limits_cache
        self._bounds = bounds
        self._kinds: dict[UseKind, _UseLimits] = {
            "requests": _create_use_limits("requests", bounds.requests, RETRY_SECONDS),
            "polls": _create_use_limits("polls", bounds.polls, POLL_RETRY_SECONDS),
            "websockets": _create_use_limits("websockets", bounds.websockets, POLL_RETRY_SECONDS),
        }
        self._strangers = SlotCounts()
        self._nameless = SlotCounts()

    def acquire(self, use: UseKind, principal: Principal) -> HeldSlots:
        """Occupy the slots of a use by a principal; raise `TooManyRequests`."""
        kind, tenant = self._kinds[use], principal.tenant
        limits = self._known.get(tenant)
        claims = (
            (principal_key(principal), getattr(limits, f"each_{use}"), kind.each_name),
            (tenant, min(getattr(limits, use), kind.maximum), use),
        )
        return acquire_slots(kind.counts, claims, tenant, kind.retry_seconds)

    def acquire_anonymous_websocket(self, address: str) -> HeldSlots:
        """Occupy the slots of a WebSocket that logs in later; raise `TooManyRequests`.

        `management` counts it for its user and tenant after the login.
        """
        capacity = self._bounds.websockets
        claims = [
            (address, max(1, capacity // 8), "MQTT WebSockets of one address"),
            ("all", max(1, capacity // 2), "MQTT WebSockets"),
        ]
        return acquire_slots(self._nameless, claims, "", POLL_RETRY_SECONDS)

    def acquire_anonymous(self, route: Route, path: bytes, address: str) -> HeldSlots:
        """Occupy the slots of a request without a login; raise `TooManyRequests`."""
        each, half = self._bounds.address_requests, max(1, self._bounds.requests // 2)
        claims = [
            (address, each, "requests of one address"),
            (f"to {route.upstream}", half, "requests without a login"),
        ]
        if route.secret_path:
            claims.append((path.decode("latin-1"), each, "requests to one webhook of a flow"))
        return acquire_slots(self._strangers, claims, "", RETRY_SECONDS)

    async def measure_usage(self, request: UsageRequest) -> Usage:
        """Return how many slots of this process a principal and its tenant use, by limit name."""
        use: dict[str, int] = {}
        for name, kind in self._kinds.items():
            use[name] = kind.counts.occupied(request.tenant)
            use[kind.each_name] = kind.counts.occupied(principal_key(request))
        return use


def principal_key(principal: Principal | UsageRequest) -> str:
    """Return the key by which a principal is counted."""
    return f"{principal.kind}:{principal.tenant}:{principal.subject}"
