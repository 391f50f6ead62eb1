"""What a user may do, at every request as of now.

`tw:access:{tenant}` in Redis has the version of the tenant's users, roles, menus and grants.
`auth` raises it before it answers a change. The gateway reads it in the round trip that looks
the token up; while it stays the same, what it knows of a user holds, else it asks `auth`.
"""

import asyncio
from collections import OrderedDict
from pathlib import Path

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access, UserRef
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
        self._rpc = rpc
        self._known: OrderedDict[tuple[str, str], Access] = OrderedDict()
        self._asking: dict[tuple[str, str, int], asyncio.Task[Access]] = {}

    async def complete(self, principal: Principal) -> Principal:
        """Add to a user what it may do at version `principal.access`; others stay as they are.

        Version 0 means that Redis had none: `auth` is asked and restores it. Raises
        `Unauthenticated` when the user is gone or disabled, `Unavailable` without `auth`.
        """
        if principal.kind is not Kind.USER:
            return principal
        who = (principal.tenant, principal.subject)
        known = self._known.get(who)
        if known is None or principal.access == 0 or known.version < principal.access:
            known = await self._ask_once(principal)
        return msgspec.structs.replace(
            principal,
            functions=known.functions,
            super_admin=known.super_admin,
            access=known.version,
        )

    async def _ask_once(self, principal: Principal) -> Access:
        """Ask; requests of the same user that come meanwhile wait for the same answer."""
        key = (principal.tenant, principal.subject, principal.access)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(principal))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, principal: Principal) -> Access:
        user = UserRef(principal.tenant, principal.user_id)
        known = await self._rpc.call(ACCESS, user, Access)
        who = (principal.tenant, principal.subject)
        self._known[who] = known
        self._known.move_to_end(who)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return known
