"""`/integration`: which integrations there are."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, Page, answer, get, post
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.management.integrations.schemas import (
    IntegrationDetail,
    SearchIntegrations,
    ShownIntegration,
)
from services.management.integrations.service import IntegrationService

_SEES = holders(Function.DEVICE_ADD, Function.INTEGRATION_VIEW)


@post("/search", guards=[_SEES], summary="Search integrations")
async def search_integrations(
    request: HttpRequest,
    integrations: NamedDependency[IntegrationService],
    data: JSONBody[SearchIntegrations | None] = None,
) -> Answer[list[ShownIntegration] | Page[ShownIntegration]]:
    """Those that are there and that the caller sees, with what they have; by id."""
    wanted = data or SearchIntegrations()
    return answer(request, await integrations.search(principal_of(request), wanted))


@get("/{integration_id:str}", guards=[_SEES], summary="Get an integration")
async def get_integration(
    request: HttpRequest,
    integrations: NamedDependency[IntegrationService],
    integration_id: FromPath[str],
) -> Answer[IntegrationDetail]:
    """One integration with its entities and their values."""
    return answer(request, await integrations.get(principal_of(request), integration_id))


ROUTER = Router(
    "/integration", route_handlers=[search_integrations, get_integration], tags=["Integrations"]
)
