"""How much runs at a time: per flow, per tenant, and how much may wait."""

import asyncio
from collections import deque
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
    quick_per_tenant: int = 1024
    """The same for runs whose nodes neither run people's code nor reach other systems."""
    quick_per_flow: int = 512
    waiting: int = 10_000
    """Runs that wait; more are refused."""
    run_seconds: float = 300.0
    """How long a run may take."""
    node_seconds: float = 60.0
    """How long a node may take."""


class _Lane:
    """So many at a time, first come first served.

    A slot that gets free goes to the next one itself. `asyncio.Semaphore` looks for that one
    among all that it has woken, which takes its time when hundreds end at once.
    """

    def __init__(self, width: int) -> None:
        self.users = 0
        self._free = width
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot came at the same moment
                self.release()
            raise

    def release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class _Lanes:
    """One lane for each key that is in use."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lanes: dict[Hashable, _Lane] = {}

    @asynccontextmanager
    async def taken(self, key: Hashable) -> AsyncIterator[None]:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self._width)
        lane.users += 1
        try:
            await lane.acquire()
            try:
                yield
            finally:
                lane.release()
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[key]


class Slots:
    """Lets runs in, first come first served within a flow."""

    def __init__(self, limits: Limits) -> None:
        self._flows = _Lanes(limits.per_flow)
        self._tenants = _Lanes(limits.per_tenant)
        self._quick_flows = _Lanes(limits.quick_per_flow)
        self._quick_tenants = _Lanes(limits.quick_per_tenant)
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
    async def taken(self, tenant: str, flow_id: int, *, quick: bool = False) -> AsyncIterator[None]:
        """Hold a slot of the flow and one of the tenant around the block.

        A `quick` run waits for nobody but stores, which take what comes together at once.
        """
        flows, tenants = self._flows, self._tenants
        if quick:
            flows, tenants = self._quick_flows, self._quick_tenants
        # The flow's first: those that wait for it keep nothing from other flows.
        async with flows.taken((tenant, flow_id)), tenants.taken(tenant):
            yield

    def _hold(self, more: int) -> None:
        self._held += more
        if self._held < self._most:
            self._room.set()
        else:
            self._room.clear()
