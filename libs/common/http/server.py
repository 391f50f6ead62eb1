"""Runs an ASGI application in this process, and ends it in order.

Several processes may share a port (SO_REUSEPORT): that is how a service gets workers.
SIGTERM stops taking connections, finishes what is in flight and leaves.
"""

import asyncio
import gc
import logging
import resource
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop

from libs.common.http.protocol import BoundedProtocol
from libs.common.settings import ServiceSettings, SettingsInvalid, load
from libs.common.telemetry.logs import log_to_stderr
from libs.common.tls import ServerTls

log = logging.getLogger(__name__)

YOUNG = 10_000
"""New objects after which the garbage collector looks at them, where nobody says otherwise."""
LARGEST_FRAME = 1024 * 1024
"""Bytes of a WebSocket frame: a subscription of the most keys, each of them a long one."""
MOST_FILES = 1_048_576
"""Open files where the system has no bound."""


def listen(host: str, port: int) -> socket.socket:
    """Listen on a port that other processes of the service may share; OSError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(2048)
    listener.setblocking(False)  # noqa: FBT003 - socket takes it so
    return listener


class _Server(uvicorn.Server):
    """Leaves on SIGTERM instead of dying of it afterwards, so that `main` closes its clients."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals; uvicorn would raise them again when it has shut down."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


async def serve(
    app: Any,
    settings: ServiceSettings,
    *,
    http: Any = BoundedProtocol,
    websocket: Any = "none",
    tls: ServerTls | None = None,
    young: int = YOUNG,
) -> None:
    """Serve `app` until SIGTERM or SIGINT; raise OSError when the port is taken.

    `http` makes the protocol of a connection, `websocket` is the one that takes WebSocket
    upgrades, as uvicorn's `ws` names it. `tls` is by default what the settings say. After `young`
    new objects the garbage collector looks at them.
    """
    tls = tls or ServerTls.of(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        ws_max_size=LARGEST_FRAME,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
        http=http,
        ws=websocket,
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )
    server = _Server(config)
    _spare_what_stays(young)
    following = None if tls is None else asyncio.create_task(tls.follow())
    try:
        await server.serve(sockets=[listen(settings.host, settings.port)])
    finally:
        if following is not None:
            following.cancel()
    if not server.started:
        raise SystemExit(3)


def _spare_what_stays(young: int) -> None:
    """Keep the garbage collector from going through modules, routes and schemas again and again.

    They are some hundred thousand objects that stay as long as the process does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 20, 20)


def open_files() -> int:
    """How many files, sockets among them, the process may have open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if allowed == resource.RLIM_INFINITY else allowed


def _raise_open_files() -> None:
    """Open as many files as the system allows; by default it is a part of that, for `select`."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run_service(name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the main coroutine of the process `name`; bad settings end it with one line."""
    try:
        settings = load(ServiceSettings)
        log_to_stderr(settings.log_level, settings.log_format, name)
        _raise_open_files()
        uvloop.run(main())
    except SettingsInvalid as error:
        sys.exit(f"settings: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        log.info("interrupted")
