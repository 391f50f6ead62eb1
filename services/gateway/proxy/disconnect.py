"""Notices that a client has gone while it is waiting, and ends the work for it."""

import asyncio

from litestar.types import Receive

from services.gateway.proxy.body import RequestBody

WATCH_AFTER = 0.05
"""Seconds that an exchange runs before its client is watched: most are over by then, and
need not pay for a task of their own."""


class DisconnectWatch:
    """Cancels the task that made it when the client goes away; `gone` tells it why."""

    def __init__(self, receive: Receive, body: RequestBody) -> None:
        self._receive = receive
        self._body = body
        self._watched = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._handle = asyncio.get_running_loop().call_later(WATCH_AFTER, self._start)
        self.gone = False

    def stop(self) -> None:
        """Watch no longer."""
        self._handle.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._body.finished:
            self._task = asyncio.ensure_future(self._watch())
        else:  # whoever reads the body notices by itself
            self._handle = asyncio.get_running_loop().call_later(WATCH_AFTER, self._start)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._watched is not None:
            self._watched.cancel()
