"""Services of flows on the bus."""

from collections.abc import Mapping
from typing import Any

from libs.common.bus import RpcClient, RpcServer
from libs.common.bus.hops import current_hops
from libs.common.contracts.flows import (
    CALL,
    CallFlow,
    FlowOutputs,
    PutFlowService,
    RemoveFlowService,
)
from services.device.flow_services.service import FlowServices

MARGIN = 2.0
"""Seconds more than the flow has, for its answer to come."""


class FlowCallsOverRpc:
    """Asks `workflow` to run flows."""

    def __init__(self, client: RpcClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    async def call(
        self, tenant: str, flow_id: int, inputs: dict[str, Any], user_id: int
    ) -> Mapping[str, Any]:
        """Run a flow; its last output. Raises what `workflow` refuses or fails with."""
        wanted = CallFlow(
            tenant=tenant,
            flow_id=flow_id,
            inputs=inputs,
            user_id=user_id or None,
            hops=current_hops(),
            seconds=self._seconds,
        )
        answer = await self._client.call(CALL, wanted, FlowOutputs, self._seconds + MARGIN)
        return answer.outputs


def offer_flow_services(rpc: RpcServer, services: FlowServices) -> None:
    """Answer `rpc.device.{put|remove}_flow_service`."""
    rpc.offer("put_flow_service", PutFlowService, services.put)
    rpc.offer("remove_flow_service", RemoveFlowService, services.remove)
