"""What this process has in hand, and whose it is: requests, long polls and WebSockets.

Each is counted for the principal and for its tenant, so that whoever holds too much is refused
alone. Of what the process has for all no tenant gets more than three quarters, whatever its
limits are. Callers without a login are counted by address, by the hook that they call and by
service: all of them together get half of what a service may have in hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.contracts.limits import AskUse
from libs.common.errors import TooManyRequests
from libs.common.identity import Principal
from libs.common.limits.metrics import count_limited
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import Use
from services.gateway.limits.counts import Claim, Counts
from services.gateway.routes import Route

SOON = 1.0
"""Seconds until a refused request is tried again."""
LATER = 5.0
"""The same of what is held for long: polls and WebSockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the process has for all."""

    requests: int
    """Of one service."""
    polls: int
    websockets: int
    address_requests: int
    """Requests without a login, of one address or to one hook."""


class Held:
    """What was taken; it is given back once."""

    __slots__ = ("_claims", "_counts")

    def __init__(self, counts: Counts, claims: Sequence[Claim]) -> None:
        self._counts = counts
        self._claims = claims

    def give(self) -> None:
        """Give it back."""
        self._counts.give(self._claims)


class InHand:
    """Takes the share of a caller, or refuses it."""

    def __init__(self, known: KnownLimits, bounds: Bounds) -> None:
        self._known = known
        self._bounds = bounds
        self._requests, self._polls, self._websockets = Counts(), Counts(), Counts()
        self._strangers = Counts()
        self._most_requests = _share(bounds.requests)
        self._most_polls = _share(bounds.polls)
        self._most_websockets = _share(bounds.websockets)

    def request(self, principal: Principal) -> Held:
        """Take a request; raise `TooManyRequests`."""
        limits, tenant = self._known.of(principal.tenant), principal.tenant
        claims = (
            (key_of(principal), limits.each_requests, "eachRequests"),
            (tenant, min(limits.requests, self._most_requests), "requests"),
        )
        return _taken(self._requests, claims, tenant, SOON)

    def poll(self, principal: Principal) -> Held:
        """Take a long poll; raise `TooManyRequests`."""
        limits, tenant = self._known.of(principal.tenant), principal.tenant
        claims = (
            (key_of(principal), limits.each_polls, "eachPolls"),
            (tenant, min(limits.polls, self._most_polls), "polls"),
        )
        return _taken(self._polls, claims, tenant, LATER)

    def websocket(self, principal: Principal) -> Held:
        """Take a WebSocket; raise `TooManyRequests`."""
        limits, tenant = self._known.of(principal.tenant), principal.tenant
        claims = (
            (key_of(principal), limits.each_websockets, "eachWebsockets"),
            (tenant, min(limits.websockets, self._most_websockets), "websockets"),
        )
        return _taken(self._websockets, claims, tenant, LATER)

    def stranger(self, route: Route, path: bytes, address: str) -> Held:
        """Take a request without a login; raise `TooManyRequests`."""
        each = self._bounds.address_requests
        claims = [
            (address, each, "requests of one address"),
            (
                f"to {route.upstream}",
                max(1, self._bounds.requests // 2),
                "requests without a login",
            ),
        ]
        if route.secret_path:
            claims.append((path.decode("latin-1"), each, "requests to one address of a flow"))
        return _taken(self._strangers, claims, "", SOON)

    async def use(self, asked: AskUse) -> Use:
        """What a principal and its tenant hold, by the name of the limit."""
        key, tenant = key_of(asked), asked.tenant
        return {
            "requests": self._requests.of(tenant),
            "eachRequests": self._requests.of(key),
            "polls": self._polls.of(tenant),
            "eachPolls": self._polls.of(key),
            "websockets": self._websockets.of(tenant),
            "eachWebsockets": self._websockets.of(key),
        }


def key_of(principal: Principal | AskUse) -> str:
    """What a principal is counted by."""
    return f"{principal.kind}:{principal.tenant}:{principal.subject}"


def _share(whole: int) -> int:
    return max(1, whole * 3 // 4)


def _taken(counts: Counts, claims: Sequence[Claim], tenant: str, again: float) -> Held:
    beyond = counts.take(claims)
    if beyond is None:
        return Held(counts, claims)
    _, most, limit = beyond
    if tenant:
        count_limited(limit, tenant)
    raise TooManyRequests(f"more than {most} {limit} at once", retry_after=again)
