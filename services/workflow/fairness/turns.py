"""Slots that tenants, and the flows of each, take turns at. No I/O.

The next slot is for the tenant that has the fewest, of several for the one that has waited for its
turn longest; and so on among the flows of that tenant. So each of N tenants comes to have an Nth of
the slots, however many wait and however long they keep a slot. Nobody takes the last ones
(`shares`): whoever comes first finds one at once, or the next that gets free.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from services.workflow.fairness.order import Order
from services.workflow.fairness.shares import Shares

Turn = asyncio.Future[None]


class Owner(NamedTuple):
    """Whose it is."""

    tenant: str
    flow_id: int
    """0 is a design that is tested."""


class Bounds(NamedTuple):
    """Slots at a time."""

    tenant: int
    flow: int
    """Each of the tenant."""


class _Flow:
    """A flow that has slots or waits for some."""

    def __init__(self) -> None:
        self.held = 0
        self.waiting: OrderedDict[Turn, None] = OrderedDict()


class _Tenant:
    """A tenant that has slots or waits for some."""

    def __init__(self) -> None:
        self.held = 0
        self.flows: dict[int, _Flow] = {}
        self.order: Order[int] = Order()
        """Flows that wait, and have fewer slots than they may."""


class Turns:
    """Gives slots in turn."""

    def __init__(self, slots: int, bounds: Callable[[str], Bounds]) -> None:
        """`bounds` are those of a tenant; they may change at any time."""
        self._shares = Shares(slots)
        self._bounds = bounds
        self._tenants: dict[str, _Tenant] = {}
        self._order: Order[str] = Order()
        """Tenants that have a flow in their order, and fewer slots than they may."""

    @asynccontextmanager
    async def taken(self, owner: Owner) -> AsyncIterator[None]:
        """Hold a slot around the block."""
        await self.take(owner)
        try:
            yield
        finally:
            self.give_back(owner)

    def held(self, tenant: str) -> int:
        """Slots that a tenant has."""
        return self._shares.of(tenant)

    async def take(self, owner: Owner) -> None:
        """Hold a slot, from its turn until it is given back."""
        tenant = self._tenants.setdefault(owner.tenant, _Tenant())
        flow = tenant.flows.setdefault(owner.flow_id, _Flow())
        bounds = self._bounds(owner.tenant)
        at_once = tenant.held < bounds.tenant and flow.held < bounds.flow
        if at_once and not flow.waiting and self._shares.fits(owner.tenant):
            self._hold(owner, 1)
            return
        turn: Turn = asyncio.get_running_loop().create_future()
        flow.waiting[turn] = None
        self._line_up(owner)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot came at the same moment
                self.give_back(owner)
            elif turn in flow.waiting:
                del flow.waiting[turn]
                self._line_up(owner)
            raise

    def give_back(self, owner: Owner) -> None:
        """Let a slot go."""
        self._hold(owner, -1)
        self._line_up(owner)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give free slots to those whose turn it is."""
        while self._order and self._shares.fits(name := self._order.first()):
            tenant = self._tenants[name]
            owner = Owner(name, tenant.order.first())
            turn, _ = tenant.flows[owner.flow_id].waiting.popitem(last=False)
            if not turn.done():  # else it is cancelled, and has not heard of it
                self._hold(owner, 1)
                turn.set_result(None)
            self._line_up(owner)

    def _hold(self, owner: Owner, more: int) -> None:
        tenant = self._tenants[owner.tenant]
        tenant.held += more
        tenant.flows[owner.flow_id].held += more
        if more > 0:
            self._shares.take(owner.tenant)
        else:
            self._shares.give_back(owner.tenant)

    def _line_up(self, owner: Owner) -> None:
        """Put a flow and its tenant where they belong now, and forget those that are done."""
        tenant = self._tenants[owner.tenant]
        flow = tenant.flows[owner.flow_id]
        if flow.waiting or tenant.order:
            self._put(owner, tenant, flow)
        if not (flow.held or flow.waiting):
            del tenant.flows[owner.flow_id]
            if not tenant.flows:
                del self._tenants[owner.tenant]

    def _put(self, owner: Owner, tenant: _Tenant, flow: _Flow) -> None:
        bounds = self._bounds(owner.tenant)
        if flow.waiting and flow.held < bounds.flow:
            tenant.order.put(owner.flow_id, flow.held)
        else:
            tenant.order.drop(owner.flow_id)
        if tenant.order and tenant.held < bounds.tenant:
            self._order.put(owner.tenant, tenant.held)
        else:
            self._order.drop(owner.tenant)
