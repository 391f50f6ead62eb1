"""`/workflow/components`: the node types of flows."""

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
    build_catalogue,
    render_component,
)
from services.workflow.nodes.base import Registry

FUNCTIONS = (Function.WORKFLOW_VIEW, Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@get("/", guards=[holders(*FUNCTIONS)])
async def list_components(
    request: HttpRequest,
    registry: NamedDependency[Registry],
    editors: NamedDependency[Editors],
) -> dict[str, list[Component]]:
    """List node types by group. `data` is JSON text.

    An existing console gets only the start nodes that its editor supports.
    """
    accept = request.headers.get("accept", "")
    return build_catalogue(registry, await editors.list_start_nodes(principal_of(request), accept))


@get("/{name:str}", guards=[holders(*FUNCTIONS)])
async def get_component(registry: NamedDependency[Registry], name: FromPath[str]) -> str:
    """Get a node type, its parameters and its outputs as JSON text."""
    node = registry.find(name)
    if node is None:
        raise NotFound(f"node type `{name:.50}` does not exist", field="name")
    return render_component(node)


@get("/languages", guards=[holders(*FUNCTIONS)])
async def list_languages() -> Languages:
    """List the supported languages of code and conditions."""
    return Languages(**LANGUAGES)


@dataclass(frozen=True)
class ComponentHandlers:
    """Dependencies of the operations on node types."""

    registry: Registry
    editors: Editors


def component_router(handlers: ComponentHandlers) -> Router:
    """Return the router below `/workflow`."""
    return Router(
        "/components", route_handlers=operations_of(globals()), dependencies=provide(handlers)
    )
