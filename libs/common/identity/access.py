"""What a user may do, at every request as of now.

`tw:access:{tenant}` in Redis has the version of the tenant's users, roles, menus and grants.
`auth` raises it before it answers a change. The gateway reads it in the round trip that looks
the token up; while it stays the same, what it knows of a user holds, else it asks `auth`.
"""

from pathlib import Path

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access
from libs.common.identity.asking import Asked
from libs.common.identity.principal import Kind, Principal
from libs.common.store.redis import Redis

KEPT = 10_000
"""Most users whose access is kept in a process."""


def access_key(tenant: str) -> str:
    """Where the version of a tenant's access stands."""
    return f"tw:access:{tenant}"


class AccessVersions:
    """Raises versions; only `auth` has one."""

    def __init__(self, redis: Redis) -> None:
        text = (Path(__file__).parent / "access_raise.lua").read_text()
        self._raise = redis.register_script(text)

    async def reach(self, tenant: str, version: int) -> None:
        """Let the next look-up see `version` or a later one; repeatable."""
        await self._raise(keys=[access_key(tenant)], args=[version])


class AccessReader:
    """Completes principals of users; the gateway has one."""

    def __init__(self, rpc: RpcClient) -> None:
        self._asked = Asked(rpc, ACCESS, Access, KEPT)

    async def complete(self, principal: Principal) -> Principal:
        """Add to a user what it may do at version `principal.access`; others stay as they are.

        Version 0 means that Redis had none: `auth` is asked and restores it. Raises
        `Unauthenticated` when the user is gone or disabled, `Unavailable` without `auth`.
        """
        if principal.kind is not Kind.USER:
            return principal
        known = await self._asked.about(principal)
        return msgspec.structs.replace(
            principal,
            functions=known.functions,
            super_admin=known.super_admin,
            viewers_may_command=known.viewers_may_command,
            access=known.version,
        )
