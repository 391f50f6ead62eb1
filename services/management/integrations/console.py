"""The operations of `/integration`."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import RequestPrincipal, provide
from libs.common.http.console import Page, get, post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.management.integrations.schemas import (
    IntegrationDetail,
    SearchIntegrations,
    ShownIntegration,
)
from services.management.integrations.service import IntegrationService

Integrations = NamedDependency[IntegrationService]
_SEES = holders(Function.DEVICE_ADD, Function.INTEGRATION_VIEW)


@post("/search", guards=[_SEES])
async def search_integrations(
    principal: RequestPrincipal,
    integrations: Integrations,
    data: JSONBody[SearchIntegrations | None] = None,
) -> list[ShownIntegration] | Page[ShownIntegration]:
    """List the running integrations that the caller sees, with numbers of devices, by id."""
    wanted = data or SearchIntegrations()
    return await integrations.search(principal, wanted)


@get("/{integration_id:str}", guards=[_SEES])
async def get_integration(
    principal: RequestPrincipal,
    integrations: Integrations,
    integration_id: FromPath[str],
) -> IntegrationDetail:
    """Return an integration with its entities and their values."""
    return await integrations.get(principal, integration_id)


@dataclass(frozen=True)
class IntegrationHandlers:
    """Dependencies of the handlers."""

    integrations: IntegrationService


def create_router(integrations: IntegrationService) -> Router:
    """Return the router of the operations, with their dependencies."""
    return Router(
        "/integration",
        route_handlers=operations_of(globals()),
        dependencies=provide(IntegrationHandlers(integrations)),
        tags=["Integrations"],
    )
