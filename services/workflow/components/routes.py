"""`/workflow/components`: what flows are made of."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath

from libs.common.errors import NotFound
from libs.common.http import HttpRequest
from libs.common.http.console import Answer, answer, get
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.workflow.components.catalogue import (
    LANGUAGES,
    Component,
    Languages,
    catalogue,
    describe,
)
from services.workflow.nodes.base import Registry

FUNCTIONS = (Function.WORKFLOW_VIEW, Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@get("/", guards=[holders(*FUNCTIONS)], summary="List node types")
async def list_components(
    request: HttpRequest, registry: NamedDependency[Registry]
) -> Answer[dict[str, list[Component]]]:
    """Node types by group; `data` is JSON text."""
    return answer(request, catalogue(registry))


@get("/{name:str}", guards=[holders(*FUNCTIONS)], summary="Describe a node type")
async def get_component(
    request: HttpRequest, registry: NamedDependency[Registry], name: FromPath[str]
) -> Answer[str]:
    """JSON text with the component, its parameters and its outputs."""
    node = registry.find(name)
    if node is None:
        raise NotFound(f"there is no node type {name:.50}", field="name")
    return answer(request, describe(node))


@get("/languages", guards=[holders(*FUNCTIONS)], summary="List languages")
async def list_languages(request: HttpRequest) -> Answer[Languages]:
    """What code and conditions may be written in."""
    return answer(request, Languages(**LANGUAGES))


ROUTER = Router(
    "/components",
    route_handlers=[list_components, get_component, list_languages],
)
