"""Flows on the bus: what other services ask about them, and what `auth` is asked for them."""

import logging
from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.names import DescribedFlows, DescribeFlows
from libs.common.contracts.users import DESCRIBE, DescribedUsers, DescribeUsers
from libs.common.errors import Unavailable
from services.workflow.flows.store import FlowStore

log = logging.getLogger(__name__)


class People:
    """What people are called."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def nicknames(self, tenant: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Nicknames by user id; a list of flows is worth showing without them."""
        if not ids:
            return {}
        try:
            found = await self._rpc.call(DESCRIBE, DescribeUsers(tenant, list(ids)), DescribedUsers)
        except Unavailable as error:
            log.warning("flows are shown without the names of their authors: %s", error)
            return {}
        return {int(user_id): name for user_id, name in found.nicknames.items()}


def offer_names(rpc: RpcServer, flows: FlowStore) -> None:
    """Answer `rpc.workflow.describe_flows`."""

    async def describe(wanted: DescribeFlows) -> DescribedFlows:
        return DescribedFlows(await flows.present(wanted.tenant, wanted.ids))

    rpc.offer("describe_flows", DescribeFlows, describe)
