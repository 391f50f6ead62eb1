"""Who sends too much is shut out: it loses its connections, and waits before it comes again."""

import logging
import time
from functools import partial

from libs.common.bus import RpcClient
from libs.common.contracts.auth import SHUT_OUT, SHUT_OUT_SECONDS, Done, ShutOut
from libs.common.errors import ThingwayError
from libs.common.jobs import Beside
from libs.common.recent import Recent

log = logging.getLogger(__name__)

TIMEOUT = 5.0
"""Seconds that `auth` and `device`, which it asks, get."""
KEPT = 10_000
"""Users that are remembered."""


class Floods:
    """Shuts out users of the bus, beside what its caller does."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._since: Recent[str, float] = Recent(KEPT)
        self._asking = Beside()

    def __len__(self) -> int:
        """How many users are remembered; none while nobody has sent too much."""
        return len(self._since)

    def shuts_out(self, user: str) -> bool:
        """Tell whether a user was shut out a moment ago: what still comes was on its way."""
        since = self._since.get(user)
        return since is not None and time.monotonic() < since + SHUT_OUT_SECONDS

    def end(self, user: str) -> None:
        """Shut a user out, unless it is."""
        if not self.shuts_out(user):
            self._since.put(user, time.monotonic())
            self._asking.begin(user, partial(self._end, user))

    async def _end(self, user: str) -> None:
        try:
            await self._rpc.call(SHUT_OUT, ShutOut(user), Done, timeout=TIMEOUT)
        except ThingwayError as error:
            self._since.pop(user)
            log.warning("%s sends too much and is not shut out: %s", user, error)
