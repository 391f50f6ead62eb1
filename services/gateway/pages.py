"""The gateway's own pages: probes, metrics, console, documentation.

`/docs` is Swagger UI (`docs/static`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout
from litestar import Litestar, Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler, HTTPScope
from yarl import URL

from libs.common.contracts.mqtt import MQTT_WEBSOCKET_PATH
from libs.common.errors import InvalidInput, NotFound
from libs.common.http.app import (
    CHECK_TIMEOUT_SECONDS,
    NOT_READY,
    OK,
    VERSION_HEADER,
    HttpApplication,
    ReadinessCheck,
    check_all,
    is_ready,
)
from libs.common.http.failures import EXCEPTION_HANDLERS
from libs.common.http.request import HttpRequest
from libs.common.http.static import YEAR_SECONDS, StaticDocument
from libs.common.telemetry import Telemetry
from libs.common.version import VERSION
from services.gateway.docs.catalogue import DocumentCache
from services.gateway.docs.document import API_BY_FILE_NAME
from services.gateway.routes import API_PREFIX

_MEDIA_TYPE_BY_SUFFIX = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
log = logging.getLogger(__name__)

STATES_CACHE_SECONDS = 1.0
"""Seconds for which the states of dependencies are cached."""


def create_service_check(session: ClientSession, base: URL) -> ReadinessCheck:
    """Return a check that a service is ready; the check returns the service's version."""

    timeout = ClientTimeout(total=CHECK_TIMEOUT_SECONDS)

    async def check() -> str | None:
        async with session.get(base / "readyz", timeout=timeout) as answer:
            if answer.status != 200:  # noqa: PLR2004 - the status is clear
                raise ClientError(f"/readyz answered {answer.status}")
            return answer.headers.get(VERSION_HEADER)

    return check


class ReadinessCache:
    """The cached state by dependency: `ok`, `ok: 0.2.0` for a service, or a failure."""

    def __init__(self, checks: Mapping[str, ReadinessCheck]) -> None:
        self._checks = checks
        self._states: dict[str, str] = {}
        self._at = float("-inf")
        self._lock = asyncio.Lock()

    async def states(self) -> dict[str, str]:
        """Return the state of every dependency, cached for a second; log new failures."""
        async with self._lock:
            if time.monotonic() - self._at > STATES_CACHE_SECONDS:
                before, self._states = self._states, await check_all("gateway", self._checks)
                for name, state in self._states.items():
                    if not is_ready(state) and is_ready(before.get(name, OK)):
                        log.warning("%s: %s", name, state)
                self._at = time.monotonic()
            return self._states


CONSOLE_FOLDER = Path(__file__).parents[2] / "console" / "dist"
CSP_HEADER = "Content-Security-Policy"
CONSOLE_POLICY_HEADERS = {
    CSP_HEADER: "default-src 'self'; img-src 'self' data: blob:; form-action 'self'; "
    "worker-src 'self'",
    "Permissions-Policy": "camera=(self), display-capture=(), geolocation=(), microphone=()",
}
"""The policy of the console: only files of this origin are loaded, no inline code runs, and only
the camera is used, for QR codes. `build_security_headers` adds what applies to all answers."""


def _read_static_document(
    path: Path, cache_seconds: int = 0, policy: Mapping[str, str] | None = None
) -> StaticDocument:
    return StaticDocument(
        path.read_bytes(), _MEDIA_TYPE_BY_SUFFIX[path.suffix], cache_seconds, policy or {}
    )


class ConsoleFiles:
    """The console's files below the folder `built`, in memory.

    If the console was not built, `page` and `worker` are None, and `assets` is empty.
    """

    def __init__(self, built: Path = CONSOLE_FOLDER) -> None:
        page = built / "index.html"
        self.page = (
            _read_static_document(page, policy=CONSOLE_POLICY_HEADERS) if page.is_file() else None
        )
        worker = built / "sw.js"
        self.worker = _read_static_document(worker) if worker.is_file() else None
        """The service worker, which browsers request each time, because it lists the files of this
        build."""
        self.assets = {
            path.name: _read_static_document(path, YEAR_SECONDS)
            for path in (built / "assets").glob("*")
            if path.suffix in _MEDIA_TYPE_BY_SUFFIX
        }
        """Files whose names depend on their content, so that they never change."""


_DAY_SECONDS = 86400
DOCUMENTATION_POLICY_HEADERS = {
    CSP_HEADER: "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
}
"""The policy of the documentation's pages: only files of this origin are loaded."""


DOCUMENTATION_FILE_BY_NAME = {
    path.name: _read_static_document(path, 0, DOCUMENTATION_POLICY_HEADERS)
    if path.suffix == ".html"
    else _read_static_document(path, _DAY_SECONDS)
    for path in (Path(__file__).parent / "docs" / "static").iterdir()
    if path.suffix in _MEDIA_TYPE_BY_SUFFIX
}
"""The pages `start.html` and `docs.html`, and the files that they load."""


def create_pages_application(
    readiness: ReadinessCache,
    catalogue: DocumentCache,
    telemetry: Telemetry,
    lifespan: Callable[[Litestar], AbstractAsyncContextManager[None]],
    console: ConsoleFiles | None = None,
    *,
    operations_port: int = 0,
) -> Litestar:
    """Return the application of the gateway's own pages.

    `lifespan` opens and closes the process's resources. Without a built console, `/` is a page of
    links. With `operations_port`, only this port answers `/metrics`.
    """
    return HttpApplication(
        route_handlers=[
            *_create_probe_handlers(readiness, telemetry, operations_port),
            *_create_console_handlers(console),
            *_create_documentation_handlers(catalogue),
            reject_without_upgrade,
        ],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=[lifespan],
        openapi_config=None,
        logging_config=None,
    )


@get(["/websocket", f"{API_PREFIX.decode()}/websocket", MQTT_WEBSOCKET_PATH])
async def reject_without_upgrade() -> None:
    """Reject a plain request to a WebSocket path; upgrades are handled before."""
    raise InvalidInput("must be websocket: this path accepts only WebSockets", field="Upgrade")


def local_port(scope: HTTPScope) -> int:
    """Return the port of this process at which a request arrived; 0 if unknown."""
    _, port = scope["server"] or ("", 0)
    return port or 0


def _create_probe_handlers(
    readiness: ReadinessCache, telemetry: Telemetry, operations_port: int
) -> list[ControllerRouterHandler]:
    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok", "version": VERSION}

    @get("/readyz")
    async def readyz(request: HttpRequest) -> Response[dict[str, str]]:
        states = await readiness.states()
        ready = all(map(is_ready, states.values()))
        if local_port(request.scope) != operations_port:  # reasons may contain addresses
            states = {
                name: state if is_ready(state) else NOT_READY for name, state in states.items()
            }
        return Response(states, status_code=200 if ready else 503)

    @get("/metrics", media_type="text/plain")
    async def metrics(request: HttpRequest) -> bytes:
        if operations_port and local_port(request.scope) != operations_port:
            raise NotFound("only the port for operators answers /metrics")
        await readiness.states()
        return await asyncio.to_thread(telemetry.exposition)

    return [healthz, readyz, metrics]


def _create_console_handlers(console: ConsoleFiles | None) -> list[ControllerRouterHandler]:
    page = (console and console.page) or DOCUMENTATION_FILE_BY_NAME["start.html"]
    assets = console.assets if console else {}

    @get("/")
    async def start(request: HttpRequest) -> Response[bytes]:
        return page.answer(request)

    @get("/assets/{name:str}")
    async def asset(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
        if name not in assets:
            raise NotFound("the console has no such file")
        return assets[name].answer(request)

    @get("/sw.js")
    async def worker(request: HttpRequest) -> Response[bytes]:
        if console is None or console.worker is None:
            raise NotFound("the console has no service worker")
        return console.worker.answer(request)

    return [start, asset, worker]


def _create_documentation_handlers(catalogue: DocumentCache) -> list[ControllerRouterHandler]:
    @get("/openapi.json")
    async def openapi(request: HttpRequest) -> Response[bytes]:
        return (await catalogue.get_document()).answer(request)

    @get("/openapi/{name:str}")
    async def openapi_of(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
        api = API_BY_FILE_NAME.get(name)
        if api is None:
            raise NotFound(f"must be one of {', '.join(API_BY_FILE_NAME)}")
        return (await catalogue.get_document(api)).answer(request)

    @get("/docs")
    async def docs(request: HttpRequest) -> Response[bytes]:
        return DOCUMENTATION_FILE_BY_NAME["docs.html"].answer(request)

    @get("/docs/{name:str}")
    async def file(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
        if name not in DOCUMENTATION_FILE_BY_NAME:
            raise NotFound("the documentation has no such file")
        return DOCUMENTATION_FILE_BY_NAME[name].answer(request)

    return [openapi, openapi_of, docs, file]
