"""Serves an application of ours in this process, on a port of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import uvicorn

from libs.common.http.protocol import BoundedProtocol
from libs.common.http.server import open_listening_socket


@contextlib.asynccontextmanager
async def serving(
    app: Any,
    websocket: Any = "none",
    http: Any = BoundedProtocol,
    keep_alive: float = 5,
    headers: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[int]:
    """Serve an ASGI application as our services do; give the port."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, http=http, server_header=False,
        date_header=False, timeout_graceful_shutdown=1, proxy_headers=False, ws=websocket,
        timeout_keep_alive=keep_alive, headers=list(headers),
    )  # fmt: skip
    server, listener = uvicorn.Server(config), open_listening_socket("127.0.0.1", 0)
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.005)
        assert not task.done(), task.result()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
