"""How much runs at a time: per flow, per tenant, and how much may wait."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from libs.common.errors import TooManyRequests


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one process."""

    per_tenant: int = 64
    """Runs of a tenant at a time; more wait."""
    per_flow: int = 16
    """Runs of a flow at a time; more wait."""
    waiting: int = 10_000
    """Runs that wait; more are refused."""
    run_seconds: float = 300.0
    """How long a run may take."""
    node_seconds: float = 60.0
    """How long a node may take."""


class _Lanes:
    """One semaphore for each key that is in use."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lanes: dict[Hashable, asyncio.Semaphore] = {}
        self._users: dict[Hashable, int] = {}

    @asynccontextmanager
    async def taken(self, key: Hashable) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(key, asyncio.Semaphore(self._width))
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lane:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._lanes[key]


class Slots:
    """Lets runs in, first come first served within a flow."""

    def __init__(self, limits: Limits) -> None:
        self._flows = _Lanes(limits.per_flow)
        self._tenants = _Lanes(limits.per_tenant)
        self._most = limits.waiting
        self._held = 0
        self._room = asyncio.Event()
        self._room.set()

    def check(self, more: int = 1) -> None:
        """Raise `TooManyRequests` when so many more cannot even wait."""
        if self._held + more > self._most:
            raise TooManyRequests("too many runs wait; come back later", retry_after=1.0)

    async def room(self) -> None:
        """Wait until another run may wait; for who has a queue of its own."""
        await self._room.wait()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Count a run around the block, from its waiting until it is recorded."""
        self._hold(1)
        try:
            yield
        finally:
            self._hold(-1)

    @asynccontextmanager
    async def taken(self, tenant: str, flow_id: int) -> AsyncIterator[None]:
        """Hold a slot of the flow and one of the tenant around the block."""
        # The flow's first: those that wait for it keep nothing from other flows.
        async with self._flows.taken((tenant, flow_id)), self._tenants.taken(tenant):
            yield

    def _hold(self, more: int) -> None:
        self._held += more
        if self._held < self._most:
            self._room.set()
        else:
            self._room.clear()
