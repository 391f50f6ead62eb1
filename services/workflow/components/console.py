"""`/workflow/components`: what flows are made of."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath

from libs.common.errors import NotFound
from libs.common.http import HttpRequest, principal_of, provide
from libs.common.http.console import get
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function
from services.workflow.components.catalogue import (
    LANGUAGES,
    Component,
    Editors,
    Languages,
    catalogue,
    describe,
)
from services.workflow.nodes.base import Registry

FUNCTIONS = (Function.WORKFLOW_VIEW, Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@get("/", guards=[holders(*FUNCTIONS)])
async def list_components(
    request: HttpRequest,
    registry: NamedDependency[Registry],
    editors: NamedDependency[Editors],
) -> dict[str, list[Component]]:
    """Node types by group; `data` is JSON text.

    An existing console gets only the start nodes that its editor can create.
    """
    accept = request.headers.get("accept", "")
    return catalogue(registry, await editors.start_nodes(principal_of(request), accept))


@get("/{name:str}", guards=[holders(*FUNCTIONS)])
async def get_component(registry: NamedDependency[Registry], name: FromPath[str]) -> str:
    """JSON text with the component, its parameters and its outputs."""
    node = registry.find(name)
    if node is None:
        raise NotFound(f"there is no node type {name:.50}", field="name")
    return describe(node)


@get("/languages", guards=[holders(*FUNCTIONS)])
async def list_languages() -> Languages:
    """What code and conditions may be written in."""
    return Languages(**LANGUAGES)


@dataclass(frozen=True)
class ComponentHandlers:
    """What the handlers above are given."""

    registry: Registry
    editors: Editors


def component_router(handlers: ComponentHandlers) -> Router:
    """Return the router below `/workflow`."""
    return Router(
        "/components", route_handlers=operations_of(globals()), dependencies=provide(handlers)
    )
