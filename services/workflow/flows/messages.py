"""Flows on the bus: what other services ask about them."""

from libs.common.bus import RpcServer
from libs.common.contracts.names import DescribedFlows, DescribeFlows
from services.workflow.flows.store import FlowStore


def offer_names(rpc: RpcServer, flows: FlowStore) -> None:
    """Answer `rpc.workflow.describe_flows`."""

    async def describe(wanted: DescribeFlows) -> DescribedFlows:
        return DescribedFlows(await flows.present(wanted.tenant, wanted.ids))

    rpc.offer("describe_flows", DescribeFlows, describe)
