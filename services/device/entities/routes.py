"""`/entity`: entities on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, Page, PathId, answer, get, post
from libs.common.http.guards import holders, users
from libs.common.identity.functions import Function
from services.device.entities.schemas import (
    EntityMeta,
    EntityStatus,
    SearchEntities,
    ShownEntity,
)
from services.device.entities.search.service import EntitySearch
from services.device.entities.service import EntityService


@post(
    "/search",
    guards=[
        holders(Function.DASHBOARD_EDIT, Function.ENTITY_CUSTOM_VIEW, Function.ENTITY_DATA_VIEW)
    ],
    summary="Search entities",
)
async def search_entities(
    request: HttpRequest,
    entity_search: NamedDependency[EntitySearch],
    data: JSONBody[SearchEntities | None] = None,
) -> Answer[list[ShownEntity] | Page[ShownEntity]]:
    """The entities that the caller sees, the newest first; at most 10,000 in one answer."""
    wanted = data or SearchEntities()
    return answer(request, await entity_search.search(principal_of(request), wanted))


@get(
    "/{entity_id:str}/children",
    guards=[holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.INTEGRATION_VIEW)],
    summary="List the children of an entity",
)
async def entity_children(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[list[ShownEntity]]:
    """The members of an OBJECT, the inputs of a service, the outputs of an event."""
    return answer(request, await entities.children(principal_of(request), entity_id))


@get("/{entity_id:str}/meta", guards=[users], summary="Get the metadata of an entity")
async def entity_meta(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[EntityMeta]:
    """What is known of an entity besides its value."""
    return answer(request, await entities.meta(principal_of(request), entity_id))


@get(
    "/{entity_id:str}/status",
    guards=[holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW)],
    summary="Get the latest value of an entity",
)
async def entity_status(
    request: HttpRequest, entities: NamedDependency[EntityService], entity_id: PathId
) -> Answer[EntityStatus]:
    """The latest value of a property; empty when there is none."""
    return answer(request, await entities.status(principal_of(request), entity_id))


ROUTER = Router(
    "/entity",
    route_handlers=[search_entities, entity_children, entity_meta, entity_status],
    tags=["Entities"],
)
