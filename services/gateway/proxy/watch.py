"""Ends the work for a request whose client has gone, or whose time is up.

One timer serves all limits of a request, and it looks for the first time after 50 ms: most
requests are over by then, and have paid for one timer and for no task of their own.
"""

import asyncio
from collections.abc import Callable

from litestar.types import Receive

from libs.common.errors import ThingwayError
from services.gateway.proxy.body import ClientGone, RequestBody

FIRST_LOOK = 0.05
"""Seconds until the client is watched."""

Reason = Callable[[], ThingwayError]
"""Makes the error that is answered when the time is up."""


class Watch:
    """Watches the request that the current task works for, and cancels the task."""

    def __init__(self, receive: Receive, body: RequestBody) -> None:
        self._receive = receive
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._worker = asyncio.current_task(self._loop)
        self._deadline = float("inf")
        self._reason: Reason | None = None
        self._listener: asyncio.Task[None] | None = None
        self._looked = False
        self._gone = False
        self._expired: ThingwayError | None = None
        self._timer = self._loop.call_later(FIRST_LOOK, self._look)

    def limit(self, seconds: float, reason: Reason) -> None:
        """What follows may take `seconds`; the limit before is no longer."""
        self._deadline = self._loop.time() + seconds
        self._reason = reason
        if self._looked:
            self._timer.cancel()
            self._look()

    def stop(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()

    def why(self, cancelled: asyncio.CancelledError) -> ThingwayError:
        """Why the task was cancelled: the error to answer.

        Raises `ClientGone`, or `cancelled` itself when it was not this watch.
        """
        if self._worker is None or not (self._gone or self._expired):
            raise cancelled
        self._worker.uncancel()
        if self._expired is None:
            raise ClientGone from cancelled
        return self._expired

    def _look(self) -> None:
        self._looked = True
        now = self._loop.time()
        if now >= self._deadline and self._reason is not None:
            self._expired = self._reason()
            self._end()
            return
        if self._listener is None and self._body.finished:
            self._listener = asyncio.ensure_future(self._listen())
        # Whoever reads a body that is still coming notices by itself that the client goes.
        again = self._deadline if self._listener else min(self._deadline, now + FIRST_LOOK)
        if again != float("inf"):
            self._timer = self._loop.call_at(again, self._look)

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._end()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
