"""`/entity`: what people make themselves."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, PathId, answer, post, put
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.device.custom_entities.schemas import CreateEntity, DeleteEntities, RenameEntity
from services.device.custom_entities.service import CustomEntities
from services.device.entities.schemas import EntityMeta


@post("/", guards=[holders(Function.ENTITY_CUSTOM_ADD)], summary="Create a custom entity")
async def create_entity(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    data: JSONBody[CreateEntity],
) -> Answer[EntityMeta]:
    """Make an entity `system.integration.{identifier}`, or a child of one."""
    return answer(request, await custom_entities.create(principal_of(request), data))


@put(
    "/{entity_id:str}",
    guards=[holders(Function.ENTITY_DATA_EDIT, Function.ENTITY_CUSTOM_EDIT)],
    summary="Rename a custom entity",
)
async def rename_entity(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    entity_id: PathId,
    data: JSONBody[RenameEntity],
) -> Answer[None]:
    """Give a custom entity another name."""
    await custom_entities.rename(principal_of(request), entity_id, data)
    return answer(request)


@post("/delete", guards=[holders(Function.ENTITY_CUSTOM_DELETE)], summary="Delete custom entities")
async def delete_entities(
    request: HttpRequest,
    custom_entities: NamedDependency[CustomEntities],
    data: JSONBody[DeleteEntities],
) -> Answer[None]:
    """Delete custom entities with their children; other ids are passed over."""
    await custom_entities.delete(principal_of(request), data)
    return answer(request)


ROUTER = Router(
    "/entity", route_handlers=[create_entity, rename_entity, delete_entities], tags=["Entities"]
)
