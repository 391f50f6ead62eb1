"""What people are called: asked of `auth`."""

import logging
from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.users import DESCRIBE, DescribedUsers, DescribeUsers
from libs.common.errors import Unavailable

log = logging.getLogger(__name__)


class PeopleOverRpc:
    """Nicknames."""

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
