"""What this process has in hand, and whose it is: requests, long polls and WebSockets.

Each is counted for the principal and for its tenant, so that whoever holds too much is refused
alone. Of what the process has for all no tenant gets more than three quarters, whatever its
limits are. Callers without a login are counted by address, by the hook that they call and by
service: all of them together get half of what a service may have in hand.
"""

from dataclasses import dataclass
from typing import NamedTuple

from libs.common.contracts.limits import AskUse
from libs.common.identity import Principal
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import Counts, Held, Use, taken
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


class _Kind(NamedTuple):
    """One thing that callers hold."""

    counts: Counts
    each: str
    """The field of `Limits` for one principal, and that for its tenant."""
    all: str
    each_name: str
    """The first as JSON has it."""
    most: int
    """What one tenant gets at most of what the process has for all."""
    again: float
    """Seconds until a refused one is tried again."""


def _kind(name: str, whole: int, again: float) -> _Kind:
    each_name = f"each{name.capitalize()}"
    return _Kind(Counts(), f"each_{name}", name, each_name, max(1, whole * 3 // 4), again)


class ConcurrencyLimiter:
    """Takes the share of a caller, or refuses it."""

    def __init__(self, known: KnownLimits, bounds: Bounds) -> None:
        self._known = known
        self._bounds = bounds
        self._requests = _kind("requests", bounds.requests, SOON)
        self._polls = _kind("polls", bounds.polls, LATER)
        self._websockets = _kind("websockets", bounds.websockets, LATER)
        self._strangers = Counts()
        self._nameless = Counts()

    def request(self, principal: Principal) -> Held:
        """Take a request; raise `TooManyRequests`."""
        return self._of_principal(self._requests, principal)

    def poll(self, principal: Principal) -> Held:
        """Take a long poll; raise `TooManyRequests`."""
        return self._of_principal(self._polls, principal)

    def websocket(self, principal: Principal) -> Held:
        """Take a WebSocket; raise `TooManyRequests`."""
        return self._of_principal(self._websockets, principal)

    def nameless_websocket(self, address: str) -> Held:
        """Take a WebSocket whose login comes with what it says; raise `TooManyRequests`.

        `management` counts it for its user and tenant, once it knows them.
        """
        whole = self._bounds.websockets
        claims = [
            (address, max(1, whole // 8), "MQTT WebSockets of one address"),
            ("all", max(1, whole // 2), "MQTT WebSockets"),
        ]
        return taken(self._nameless, claims, "", LATER)

    def stranger(self, route: Route, path: bytes, address: str) -> Held:
        """Take a request without a login; raise `TooManyRequests`."""
        each, half = self._bounds.address_requests, max(1, self._bounds.requests // 2)
        claims = [
            (address, each, "requests of one address"),
            (f"to {route.upstream}", half, "requests without a login"),
        ]
        if route.secret_path:
            claims.append((path.decode("latin-1"), each, "requests to one address of a flow"))
        return taken(self._strangers, claims, "", SOON)

    async def use(self, asked: AskUse) -> Use:
        """What a principal and its tenant hold, by the name of the limit."""
        use = {}
        for kind in (self._requests, self._polls, self._websockets):
            use[kind.all] = kind.counts.of(asked.tenant)
            use[kind.each_name] = kind.counts.of(key_of(asked))
        return use

    def _of_principal(self, kind: _Kind, principal: Principal) -> Held:
        tenant = principal.tenant
        limits = self._known.of(tenant)
        claims = (
            (key_of(principal), getattr(limits, kind.each), kind.each_name),
            (tenant, min(getattr(limits, kind.all), kind.most), kind.all),
        )
        return taken(kind.counts, claims, tenant, kind.again)


def key_of(principal: Principal | AskUse) -> str:
    """What a principal is counted by."""
    return f"{principal.kind}:{principal.tenant}:{principal.subject}"
