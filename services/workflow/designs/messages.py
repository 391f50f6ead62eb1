"""What other services ask about flows."""

from libs.common.bus import RpcServer
from libs.common.contracts.names import DescribedFlows, DescribeFlows
from services.workflow.designs.store import FlowStore


def offer_names(rpc: RpcServer, flows: FlowStore) -> None:
    """Answer `rpc.workflow.describe_flows`."""

    async def describe(wanted: DescribeFlows) -> DescribedFlows:
        return DescribedFlows(await flows.present(wanted.tenant, wanted.ids))

    rpc.offer("describe_flows", DescribeFlows, describe)
