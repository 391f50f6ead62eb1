"""What `auth` knows of users: asked once for every version, then from memory."""

import asyncio
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from libs.common.bus import RpcClient
from libs.common.contracts.access import UserRef
from libs.common.identity.principal import Principal


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
        self._kept = kept
        self._known: OrderedDict[tuple[str, str], V] = OrderedDict()
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
        who = (user.tenant, user.subject)
        self._known[who] = found
        self._known.move_to_end(who)
        if len(self._known) > self._kept:
            self._known.popitem(last=False)
        return found
