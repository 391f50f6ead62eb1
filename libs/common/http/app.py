"""The application factory: the behaviour that all services share."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from litestar import Litestar, Response, get
from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.openapi import OpenAPIConfig
from litestar.types import (
    ControllerRouterHandler,
    HTTPScope,
    LifeSpanReceive,
    LifeSpanScope,
    LifeSpanSend,
    Receive,
    Scope,
    Send,
)
from opentelemetry import metrics as measures

from libs.common.http.document import (
    ConstraintSchemas,
    DocumentPlugin,
    StructDescriptions,
    operation_id,
)
from libs.common.http.failures import EXCEPTION_HANDLERS
from libs.common.http.ids import ID_DECODERS, IdSchemas
from libs.common.http.middleware import ConcurrencyLimits, RequestContext
from libs.common.http.request import (
    REQUEST_SCOPES,
    assign_request_id,
    replace_head_and_options,
    request_caller,
    request_principal,
)
from libs.common.identity import HeaderVerifier
from libs.common.telemetry import Telemetry
from libs.common.version import VERSION

log = logging.getLogger(__name__)

ReadinessCheck = Callable[[], Awaitable[str | None]]
"""Raises an error if a dependency is not ready; may return details if it is."""

OK, NOT_READY = "ok", "not ready"
VERSION_HEADER = "X-Thingway-Version"
"""Header of `/readyz`: the version of the process."""
CHECK_TIMEOUT_SECONDS = 2.0
MAX_BODY_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a request body."""

_dependency_up_gauge = measures.get_meter("thingway").create_gauge(
    "thingway_dependency_up", description="1 while a dependency of a service is ready, else 0"
)


class HttpApplication(Litestar):
    """Assigns request ids, answers HEAD like GET, and OPTIONS with the methods of a path."""

    async def __call__(
        self,
        scope: Scope | LifeSpanScope,
        receive: Receive | LifeSpanReceive,
        send: Send | LifeSpanSend,
    ) -> None:
        """Answer a request, or run the lifespan of the process."""
        if scope["type"] in REQUEST_SCOPES:
            assign_request_id(
                cast("Scope", scope)
            )  # here, because unknown paths and methods need an id too
        if scope["type"] == ScopeType.HTTP:
            scope = replace_head_and_options(cast("HTTPScope", scope))
        await super().__call__(scope, receive, send)


@dataclass(frozen=True, kw_only=True)
class ServiceDescription:
    """The description of a service, from which `create_app` builds it."""

    name: str
    title: str
    routes: Sequence[ControllerRouterHandler]
    verifier: HeaderVerifier
    telemetry: Telemetry
    checks: Mapping[str, ReadinessCheck] = field(default_factory=dict)
    public_paths: frozenset[str] = frozenset()
    """Paths that need no principal; one that ends with `/` includes all paths below it."""
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
    """Returns a context in which the service runs."""


def create_app(service: ServiceDescription) -> Litestar:
    """Return the ASGI application of `service`."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        if service.lifespan is None:
            yield
            return
        async with service.lifespan():
            yield

    turns = ConcurrencyLimits()
    config = AppConfig(
        route_handlers=[*service.routes, *_operations(service)],
        dependencies={
            "principal": Provide(request_principal, sync_to_thread=False),
            "caller": Provide(request_caller, sync_to_thread=False),
        },
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=[lifespan],
        type_decoders=ID_DECODERS,
        plugins=[IdSchemas(), ConstraintSchemas(), StructDescriptions()],
        openapi_config=OpenAPIConfig(
            title=service.title,
            version="1",
            path="/schema",
            render_plugins=[DocumentPlugin()],
            operation_id_creator=operation_id,
            use_handler_docstrings=True,
        ),
        request_max_body_size=MAX_BODY_BYTES,
        middleware=[lambda app: RequestContext(app, service.verifier, service.public_paths, turns)],
        logging_config=None,
    )
    return HttpApplication.from_config(config)


def _operations(service: ServiceDescription) -> list[ControllerRouterHandler]:
    @get("/healthz", include_in_schema=False, sync_to_thread=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok", "version": VERSION}

    @get("/readyz", include_in_schema=False)
    async def readyz() -> Response[dict[str, str]]:
        states = await check_all(service.name, service.checks)
        ready = all(map(is_ready, states.values()))
        return Response(
            states, status_code=200 if ready else 503, headers={VERSION_HEADER: VERSION}
        )

    @get("/metrics", include_in_schema=False, media_type="text/plain")
    async def metrics() -> bytes:
        await check_all(service.name, service.checks)
        return await asyncio.to_thread(service.telemetry.exposition)

    return [healthz, readyz, metrics]


async def check_all(service: str, checks: Mapping[str, ReadinessCheck]) -> dict[str, str]:
    """Return the state of each dependency, and update its metric."""
    found = await asyncio.gather(*map(run_check, checks.values()))
    states = dict(zip(checks, found, strict=True))
    for name, state in states.items():
        _dependency_up_gauge.set(is_ready(state), {"service": service, "dependency": name})
    return states


async def run_check(check: ReadinessCheck) -> str:
    """Return `ok`, `ok: …`, or the failure of a dependency within two seconds."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
            more = await check()
    except Exception as error:  # noqa: BLE001 - after any error, the service is not ready
        return f"{NOT_READY}: {type(error).__name__}: {error}"
    return f"{OK}: {more}" if more else OK


def is_ready(state: str) -> bool:
    """Return whether a state from `run_check` means ready."""
    return state.partition(":")[0] == OK
