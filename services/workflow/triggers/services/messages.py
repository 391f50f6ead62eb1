"""Services of flows on the bus."""

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.flows import (
    PUT,
    REMOVE,
    CallFlow,
    PutFlowService,
    RemoveFlowService,
    Settled,
)
from services.workflow.triggers.services.service import AT_ONCE, FlowCaller


class EntitiesOverRpc:
    """Asks `device`, which has the entities."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def put(self, service: PutFlowService) -> None:
        """Make a service like this."""
        await self._rpc.call(PUT, service, Settled)

    async def remove(self, service: RemoveFlowService) -> None:
        """Remove a service; it may not be there."""
        await self._rpc.call(REMOVE, service, Settled)


def offer_flows(rpc: RpcServer, caller: FlowCaller) -> None:
    """Answer `rpc.workflow.call_flow`; `rpc` has to answer requests beside each other."""
    rpc.offer("call_flow", CallFlow, caller.call, at_once=AT_ONCE)
