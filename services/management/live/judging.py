"""What a user may do and see as of now, for sockets that stay open."""

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.errors import Unauthenticated
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants


class Judge:
    """Asks `auth` about users."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._rpc = rpc
        self._grants = grants

    async def of(self, principal: Principal, version: int) -> tuple[Principal, Grants] | None:
        """A user with what it may do and sees at `version` or later; None when it is gone.

        Raises what `auth` answers otherwise.
        """
        user = UserRef(principal.tenant, principal.user_id)
        try:
            access = await self._rpc.call(ACCESS, user, Access)
            known = msgspec.structs.replace(
                principal,
                functions=access.functions,
                super_admin=access.super_admin,
                access=max(access.version, version),
            )
            return known, await self._grants.of(known)
        except Unauthenticated:
            return None
