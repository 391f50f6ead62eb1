"""The Litestar application of the gateway's own pages; `/docs` is Swagger UI (`docs/static`)."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from litestar import Litestar, Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from libs.common.contracts.mqtt import WS_PATH
from libs.common.errors import InvalidInput, NotFound
from libs.common.http.app import Application, is_ready
from libs.common.http.failures import HANDLERS
from libs.common.http.request import HttpRequest
from libs.common.http.static import Static
from libs.common.telemetry import Telemetry
from libs.common.version import VERSION
from services.gateway.docs.catalogue import Catalogue
from services.gateway.docs.document import DOCUMENTS
from services.gateway.pages.console import ConsoleFiles
from services.gateway.pages.readiness import Readiness
from services.gateway.routes import API

_DAY = 86400
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".png": "image/png",
}
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'"
)
"""Nothing is loaded from anywhere else."""


def _read(path: Path) -> Static:
    page = path.suffix == ".html"
    return Static(
        path.read_bytes(), _MEDIA_TYPES[path.suffix], 0 if page else _DAY, POLICY if page else ""
    )


FILES = {
    path.name: _read(path)
    for path in (Path(__file__).parents[1] / "docs" / "static").iterdir()
    if path.suffix in _MEDIA_TYPES
}
"""The pages, `start.html` and `docs.html`, and what they load."""


def create_pages(
    readiness: Readiness,
    catalogue: Catalogue,
    telemetry: Telemetry,
    lifespan: Callable[[Litestar], AbstractAsyncContextManager[None]],
    console: ConsoleFiles | None = None,
) -> Litestar:
    """Build the application; `lifespan` opens and closes what the process has.

    Without a console that was built, `/` is a page of links.
    """
    return Application(
        route_handlers=[
            *_probes(readiness, telemetry),
            *_console(console),
            *_documentation(catalogue),
            upgrade_needed,
        ],
        exception_handlers=HANDLERS,
        lifespan=[lifespan],
        openapi_config=None,
        logging_config=None,
    )


@get(["/websocket", f"{API.decode()}/websocket", WS_PATH])
async def upgrade_needed() -> None:
    """Refuse a plain request to an address of WebSockets; upgrades never get here."""
    raise InvalidInput("must be websocket: this address takes WebSockets only", field="Upgrade")


def _probes(readiness: Readiness, telemetry: Telemetry) -> list[ControllerRouterHandler]:
    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok", "version": VERSION}

    @get("/readyz")
    async def readyz() -> Response[dict[str, str]]:
        states = await readiness.states()
        ready = all(map(is_ready, states.values()))
        return Response(states, status_code=200 if ready else 503)

    @get("/metrics", media_type="text/plain")
    async def metrics() -> bytes:
        await readiness.states()
        return await asyncio.to_thread(telemetry.exposition)

    return [healthz, readyz, metrics]


def _console(console: ConsoleFiles | None) -> list[ControllerRouterHandler]:
    page = (console and console.page) or FILES["start.html"]
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


def _documentation(catalogue: Catalogue) -> list[ControllerRouterHandler]:
    @get("/openapi.json")
    async def openapi(request: HttpRequest) -> Response[bytes]:
        return (await catalogue.document()).answer(request)

    @get("/openapi/{name:str}")
    async def openapi_of(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
        api = DOCUMENTS.get(name)
        if api is None:
            raise NotFound(f"there is {' and '.join(DOCUMENTS)}")
        return (await catalogue.document(api)).answer(request)

    @get("/docs")
    async def docs(request: HttpRequest) -> Response[bytes]:
        return FILES["docs.html"].answer(request)

    @get("/docs/{name:str}")
    async def file(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
        if name not in FILES:
            raise NotFound("the documentation has no such file")
        return FILES[name].answer(request)

    return [openapi, openapi_of, docs, file]
