"""The Litestar application of the gateway's own pages; `/docs` is Swagger UI (`docs/static`)."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any

from litestar import Litestar, Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from libs.common.errors import NotFound
from libs.common.http.app import is_ready
from libs.common.http.failures import HANDLERS
from libs.common.telemetry import Telemetry
from services.gateway.docs.catalogue import Catalogue
from services.gateway.pages.readiness import Readiness

_STATIC = Path(__file__).parents[1] / "docs" / "static"

ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "start.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
"""The files that the page loads, with their media types."""
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'"
)
"""Nothing is loaded from anywhere else."""
PAGE = (_STATIC / "index.html").read_bytes()


def create_pages(
    readiness: Readiness,
    catalogue: Catalogue,
    telemetry: Telemetry,
    lifespan: Callable[[Litestar], AbstractAsyncContextManager[None]],
) -> Litestar:
    """Build the application; `lifespan` opens and closes what the process has."""
    return Litestar(
        route_handlers=[*_probes(readiness, telemetry), *_documentation(catalogue)],
        exception_handlers=HANDLERS,
        lifespan=[lifespan],
        openapi_config=None,
        logging_config=None,
    )


def _probes(readiness: Readiness, telemetry: Telemetry) -> list[ControllerRouterHandler]:
    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @get("/readyz")
    async def readyz() -> Response[dict[str, str]]:
        states = await readiness.states()
        ready = all(map(is_ready, states.values()))
        return Response(states, status_code=200 if ready else 503)

    @get("/metrics", media_type="text/plain", sync_to_thread=True)
    def metrics() -> bytes:
        return telemetry.exposition()

    return [healthz, readyz, metrics]


def _documentation(catalogue: Catalogue) -> list[ControllerRouterHandler]:
    @get("/openapi.json")
    async def openapi() -> dict[str, Any]:
        return await catalogue.document()

    @get("/docs", media_type="text/html", sync_to_thread=False)
    def docs() -> Response[bytes]:
        return Response(PAGE, headers={"Content-Security-Policy": POLICY})

    @get("/docs/{name:str}", sync_to_thread=True)
    def file(name: FromPath[str]) -> Response[bytes]:
        return Response(
            _asset(name), media_type=ASSETS[name], headers={"Cache-Control": "max-age=86400"}
        )

    return [openapi, docs, file]


@cache
def _asset(name: str) -> bytes:
    """The content of a file of the page; raise `NotFound` when there is none of that name."""
    if name not in ASSETS:
        raise NotFound("the documentation has no such file")
    return (_STATIC / name).read_bytes()
