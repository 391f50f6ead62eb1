"""The Litestar application of the gateway's own pages."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, Response, get
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

from libs.common.http.app import is_ready
from libs.common.http.failures import HANDLERS
from libs.common.telemetry import Telemetry
from services.gateway.docs.catalogue import Catalogue
from services.gateway.docs.page import ASSETS, PAGE, POLICY, asset
from services.gateway.pages.readiness import Readiness


@dataclass(frozen=True, kw_only=True)
class Pages:
    """What the pages show."""

    readiness: Readiness
    catalogue: Catalogue
    telemetry: Telemetry
    lifespan: Callable[[Litestar], AbstractAsyncContextManager[None]]
    """Opens and closes what the process has."""


def create_pages(pages: Pages) -> Litestar:
    """Build the application."""
    return Litestar(
        route_handlers=[*_probes(pages), *_documentation(pages.catalogue)],
        exception_handlers=HANDLERS,
        lifespan=[pages.lifespan],
        openapi_config=None,
        logging_config=None,
    )


def _probes(pages: Pages) -> list[ControllerRouterHandler]:
    @get("/healthz", sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @get("/readyz")
    async def readyz() -> Response[dict[str, str]]:
        states = await pages.readiness.states()
        ready = all(map(is_ready, states.values()))
        return Response(states, status_code=200 if ready else 503)

    @get("/metrics", media_type="text/plain", sync_to_thread=True)
    def metrics() -> bytes:
        return pages.telemetry.exposition()

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
            asset(name), media_type=ASSETS[name], headers={"Cache-Control": "max-age=86400"}
        )

    return [openapi, docs, file]
