"""Admits connections to the bus up to a number, and closes those of credentials that have ended."""

import logging
from typing import Protocol

from libs.common.clock import now_ms
from libs.common.contracts.auth import Connection
from libs.common.errors import ThingwayError
from services.auth.connections.admitted import Admissions

log = logging.getLogger(__name__)

UNTOLD = 5_000
"""Milliseconds in which `device` may not have heard yet of a connection that was admitted."""


class Live(Protocol):
    """Finds and closes connections."""

    async def find(self, user: str, *, ask_servers: bool = False) -> list[Connection]:
        """The open connections of a user."""

    async def close(self, connections: list[Connection]) -> None:
        """Close connections."""


class Current(Protocol):
    """Knows which credentials are good."""

    async def of(self, user: str) -> str | None:
        """The credential of a user of the bus; None when it has none."""


class UserConnections:
    """The connections of users of the bus: devices, applications and integrations."""

    def __init__(self, admissions: Admissions, live: Live, current: Current) -> None:
        self._admissions = admissions
        self._live = live
        self._current = current

    async def admit(
        self, user: str, tenant: str, connection: Connection, credential: str, most: int
    ) -> bool:
        """Note that a connection is let in; False when the user has `most` open ones already.

        Who has not come more often lately costs one look into Redis. While `device` is away
        nobody can tell how many are open, and everybody is let in.
        """
        if await self._admissions.add(user, tenant, connection, credential) <= most:
            return True
        try:
            found = set(await self._live.find(user))
        except ThingwayError as error:
            log.warning("connections of %s cannot be counted: %s", user, error)
            return True
        since = now_ms() - UNTOLD
        untold = {one.connection for one in await self._admissions.of(user) if one.at > since}
        return len((found | untold) - {connection}) < most

    async def close(self, user: str, *, ask_servers: bool = False) -> None:
        """Close the connections of a user that its current credential has not made. Repeatable.

        Whoever is found has been admitted before, so the admissions are read after that.
        Raises `Unavailable` and `UpstreamFailed`.
        """
        found = await self._live.find(user, ask_servers=ask_servers)
        if not found:
            return
        admitted = await self._admissions.of(user)
        credential = await self._current.of(user)
        kept = {one.connection for one in admitted if one.credential == credential}
        old = [one for one in found if one not in kept]
        if old:
            await self._live.close(old)
