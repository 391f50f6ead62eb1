"""Running an ASGI application in this process until SIGTERM.

Several processes may share a port (SO_REUSEPORT); a service has several workers in this way. After
SIGTERM, the process stops accepting connections, finishes current requests and exits.
"""

import asyncio
import gc
import logging
import resource
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
import uvloop

from libs.common.http.protocol import BoundedProtocol
from libs.common.settings import ServiceSettings, SettingsInvalid, load_settings
from libs.common.store.migrations import DatabaseTooNew
from libs.common.telemetry.logs import log_to_stderr
from libs.common.tls import ServerTls, observe_expiry

log = logging.getLogger(__name__)

GC_THRESHOLD = 10_000
"""Default number of new objects after which the garbage collector examines them."""
MAX_WEBSOCKET_FRAME_BYTES = 1024 * 1024
"""Maximum bytes of a WebSocket frame. A subscription to the maximum number of long keys fits."""
OPEN_FILES_WITHOUT_LIMIT = 1_048_576
"""Open files if the system sets no limit."""


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket whose port other processes may share.

    Raises OSError if the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(2048)
    listener.setblocking(False)  # noqa: FBT003 - the signature of socket
    return listener


class _Server(uvicorn.Server):
    """A server that returns after SIGTERM, so that `main` can close its connections to stores.

    uvicorn checks ten times a second whether it should exit. Here, the signal wakes the server.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop = asyncio.get_running_loop()
        self._exiting = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture the signals without raising them again, as uvicorn would after shutdown."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note a signal and end `main_loop`."""
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._exiting.set)

    async def main_loop(self) -> None:
        """Wait for a signal."""
        await self.on_tick(0)
        await self._exiting.wait()


async def serve(
    app: Any,
    settings: ServiceSettings,
    *,
    http: Any = BoundedProtocol,
    websocket: Any = "none",
    tls: ServerTls | None = None,
    headers: Sequence[tuple[str, str]] = (),
    young: int = GC_THRESHOLD,
    more_ports: Sequence[int] = (),
) -> None:
    """Serve `app` until SIGTERM or SIGINT; raise OSError if the port is in use.

    `http` creates the protocol of a connection; `websocket` is uvicorn's `ws`, for WebSocket
    upgrades. `tls` defaults to the settings. Every answer has the fields `headers`. After `young`
    new objects, the garbage collector examines them. `more_ports` of the same address are served,
    too. Raises `SystemExit` if the application does not start.
    """
    tls = tls or ServerTls.from_settings(settings)
    observe_expiry(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        ws_max_size=MAX_WEBSOCKET_FRAME_BYTES,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.shutdown_grace),
        http=http,
        ws=websocket,
        headers=list(headers),
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
    )
    server = _Server(config)
    _freeze_permanent_objects(young)
    following = None if tls is None else asyncio.create_task(tls.reload_forever())
    try:
        sockets = [
            open_listening_socket(settings.host, port) for port in (settings.port, *more_ports)
        ]
        await server.serve(sockets=sockets)
    finally:
        if following is not None:
            following.cancel()
    if not server.started:
        raise SystemExit(3)


def _freeze_permanent_objects(young: int) -> None:
    """Exclude modules, routes and schemas from garbage collection.

    These several hundred thousand objects live as long as the process. A later collection starts
    after `young` new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(young, 20, 20)


def get_open_files_limit() -> int:
    """Return the maximum number of open files of the process, including sockets."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_WITHOUT_LIMIT if allowed == resource.RLIM_INFINITY else allowed


def _raise_open_files() -> None:
    """Raise the limit of open files to the maximum; the default suits `select`."""
    _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    if maximum != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


def run_service(name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the main coroutine of `name`; exit with one line if it cannot run.

    It cannot run with invalid settings, or with a database of a newer version. Another error is
    logged, in the format of the settings.
    """
    try:
        settings = load_settings(ServiceSettings)
        log_to_stderr(settings.log_level, settings.log_format, name)
        _raise_open_files()
        uvloop.run(main())
    except SettingsInvalid as error:
        sys.exit(f"settings: {error}")
    except DatabaseTooNew as error:
        sys.exit(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        log.info("interrupted")
    except Exception:
        log.critical("the process ends", exc_info=True)
        sys.exit(1)
