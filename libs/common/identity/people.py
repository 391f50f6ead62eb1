"""Nicknames of users, requested from `auth`."""

import logging
from collections.abc import Mapping, Sequence

from libs.common.bus import RpcClient
from libs.common.contracts.users import DESCRIBE, DescribedUsers, DescribeUsers
from libs.common.errors import Unavailable

log = logging.getLogger(__name__)


class People:
    """Looks nicknames up."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def nicknames(self, tenant: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Return nicknames by user id; empty while `auth` does not answer.

        What people have made is worth showing without their names.
        """
        if not ids:
            return {}
        try:
            found = await self._rpc.call(DESCRIBE, DescribeUsers(tenant, list(ids)), DescribedUsers)
        except Unavailable as error:
            log.warning("the names of users are left out: %s", error)
            return {}
        return {int(user_id): name for user_id, name in found.nicknames.items()}
