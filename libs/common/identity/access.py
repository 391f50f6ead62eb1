"""What a user may do, at every request as of now.

`tw:access:{tenant}` in Redis has the version of the tenant's users, roles, menus and grants.
`auth` raises it before it answers a change. The gateway reads it in the round trip that looks
the token up; while it stays the same, what it knows of a user holds, else it asks `auth`.
"""

import asyncio
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from libs.common.bus import RpcClient
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.identity.principal import Kind, Principal
from libs.common.recent import Recent
from libs.common.store.redis import Redis


class Versioned(Protocol):
    """An answer, and the version of the tenant's access that it belongs to."""

    @property
    def version(self) -> int:
        """Grows with every change."""


V = TypeVar("V", bound=Versioned)


class Asked(Generic[V]):
    """The answers of one operation, of the `kept` users who were asked about last."""

    def __init__(self, rpc: RpcClient, subject: str, answer: type[V], kept: int) -> None:
        self._rpc = rpc
        self._subject = subject
        self._answer = answer
        self._known: Recent[tuple[str, str], V] = Recent(kept)
        self._asking: dict[tuple[str, str, int], asyncio.Task[V]] = {}

    async def about(self, user: Principal) -> V:
        """The answer about a user, never older than `user.access`; 0 is always asked for anew.

        Requests that come meanwhile wait for the same answer.
        """
        known = self._known.get((user.tenant, user.subject))
        if known is not None and 0 < user.access <= known.version:
            return known
        key = (user.tenant, user.subject, user.access)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(user))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, user: Principal) -> V:
        wanted = UserRef(user.tenant, user.user_id)
        found = await self._rpc.call(self._subject, wanted, self._answer)
        self._known.put((user.tenant, user.subject), found)
        return found


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
