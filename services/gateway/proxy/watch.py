"""Cancellation of requests after a disconnection or a time limit.

A single timer serves all limits of a request and fires first after 50 ms. Most requests have ended
by then, and need only this timer and no task.
"""

import asyncio
from collections.abc import Callable

from litestar.types import Receive

from libs.common.errors import ThingwayError
from services.gateway.proxy.body import ClientGone, RequestBody

FIRST_LOOK = 0.05
"""Seconds until the client is watched."""

Reason = Callable[[], ThingwayError]
"""Returns the error of an exceeded time limit."""


class Watch:
    """Watches the request of the current task, and cancels the task."""

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
        """Replace the time limit by `seconds` from now."""
        self._deadline = self._loop.time() + seconds
        self._reason = reason
        if self._looked:
            self._timer.cancel()
            self._look()

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()

    def why(self, cancelled: asyncio.CancelledError) -> ThingwayError:
        """Return the error that cancelled the task.

        Raises `ClientGone` after a disconnect, and `cancelled` if the watch did not cancel the
        task.
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
        # While the body is being read, its reader notices that the client disconnects.
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
