"""`/entity/tags`: tags of entities on the console."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import Page, get, post, put
from libs.common.http.guards import holders, users
from libs.common.http.ids import PathId
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.device.entities.schemas import (
    DeleteTags,
    FindTags,
    MapTags,
    ShownTag,
    TagNumber,
    TagRef,
    WrittenTag,
)
from services.device.entities.tags import EntityTags

MANAGERS = holders(Function.ENTITY_TAG_MANAGE)
Tags = NamedDependency[EntityTags]


@post("/search", guards=[users], example={"keyword": "zone", "page_size": 10, "page_number": 1})
async def find_entity_tags(
    principal: Requester, entity_tags: Tags, data: JSONBody[FindTags | None] = None
) -> Page[ShownTag]:
    """The tags of the tenant, the newest first."""
    return await entity_tags.search(principal, data or FindTags())


@get("/number", guards=[users])
async def count_entity_tags(principal: Requester, entity_tags: Tags) -> TagNumber:
    """How many tags there are; at most 300."""
    return TagNumber(await entity_tags.count(principal))


@post("/", guards=[MANAGERS], example={"name": "zone-a", "color": "#6b7785", "description": ""})
async def create_entity_tag(
    principal: Requester, entity_tags: Tags, data: JSONBody[WrittenTag]
) -> TagRef:
    """Make a tag that no entity carries yet."""
    return TagRef(str(await entity_tags.create(principal, data)))


@put("/{tag_id:str}", guards=[MANAGERS])
async def update_entity_tag(
    principal: Requester, entity_tags: Tags, tag_id: PathId, data: JSONBody[WrittenTag]
) -> None:
    """Give a tag another name, colour and description."""
    await entity_tags.update(principal, tag_id, data)


@post("/delete", guards=[MANAGERS], example={"ids": []})
async def delete_entity_tags(
    principal: Requester, entity_tags: Tags, data: JSONBody[DeleteTags]
) -> None:
    """Delete tags, from entities too; unknown ids are passed over."""
    await entity_tags.delete(principal, data.ids)


@post("/mapping", guards=[holders(Function.ENTITY_DATA_EDIT)])
async def map_entity_tags(principal: Requester, entity_tags: Tags, data: JSONBody[MapTags]) -> None:
    """Add, replace or remove tags of the entities that the caller sees, all or none."""
    await entity_tags.map(principal, data)


ROUTER = Router("/entity/tags", route_handlers=operations_of(globals()), tags=["Entity tags"])
