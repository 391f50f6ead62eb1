"""The catalogue of node types, generated from their parameter structs.

Editors build their palette and forms from it. `data` of an entry is JSON text with `component`,
`properties`, `outputProperties` and `schema`, the JSON schema of all parameters.

Existing editors count the start nodes of a flow with a fixed list and do not save a flow that
starts with any other node. So the catalogue lists only the start nodes that the caller's editor
supports. Nodes after the start may have any type.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import PathParameter
from msgspec import inspect

from libs.common.bus import RpcClient
from libs.common.contracts.mqtt import HAS_LIVE_PAGES, LivePages, LoginRef
from libs.common.errors import NotFound, Unavailable
from libs.common.http import HttpRequest, build_dependencies, get_principal
from libs.common.http.console import get
from libs.common.http.guards import allow_holders
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from services.workflow.nodes.base import AnyNodeType, NodeRegistry, PaletteGroup

LANGUAGES_BY_USE = {
    "code": ["js", "python"],
    "expression": ["condition", "cel", "js", "python"],
}
"""Supported languages of code nodes (`code`) and of conditions (`expression`)."""

_JSON_TYPE_BY_FIELD_TYPE: dict[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.ListType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
    inspect.CustomType: "object",
}
log = logging.getLogger(__name__)

CONSOLE_ACCEPT_HEADER = "application/json, text/plain, */*"
"""The header `Accept` of existing consoles. Other clients send another value."""
V1_1_START_NODES = frozenset({"simpleTimer", "trigger", "eventListener", "simpleMqtt"})
"""Start nodes of the existing console v1.1."""
V1_2_START_NODES = V1_1_START_NODES | {"httpIn"}
"""Start nodes of the existing console from v1.2 on. It is recognized by its live updates over
MQTT, which each page requests first."""


class Component(msgspec.Struct):
    """A node type in the catalogue."""

    name: str
    title: str
    """Name that users see."""
    data: str
    """Description, parameters, outputs and JSON schema of the node type, as JSON text."""


class Languages(msgspec.Struct):
    """Supported languages of code and of conditions."""

    code: list[str]
    """Languages of the code node."""
    expression: list[str]
    """Languages of conditions."""


class Property(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A parameter in the form that editors read."""

    index: int
    name: str
    display_name: str
    description: str
    type: str
    required: bool
    kind: Literal["parameter"] = "parameter"
    secret: bool = False
    autowired: bool = False
    editable: bool = False
    enum: dict[str, str] | None = None
    """Values with their labels."""
    default_value: Any = None
    ui_component: str | None = None
    ui_component_group: str | None = None


def build_catalogue(
    registry: NodeRegistry, starts: frozenset[str] | None = None
) -> dict[str, list[Component]]:
    """Return node types by group, including empty groups.

    With `starts`, only these start nodes are listed.
    """
    groups: dict[str, list[Component]] = {group.value: [] for group in PaletteGroup}
    for node in registry:
        if starts is not None and node.group == PaletteGroup.ENTRY and node.name not in starts:
            continue
        groups[node.group].append(Component(node.name, node.title, render_component(node)))
    return groups


def render_component(node: AnyNodeType) -> str:
    """Return `Component.data` of a node type."""
    properties = list(_list_properties(node))
    document = {
        "component": {
            "name": node.name,
            "title": node.title,
            "description": node.description,
            "type": node.group,
            "testable": node.testable,
            "kind": "component",
        },
        "properties": {prop.name: prop for prop in properties if not prop.editable},
        "outputProperties": {prop.name: prop for prop in properties if prop.editable},
        "schema": msgspec.json.schema(node.parameters),
    }
    return msgspec.json.encode(document).decode()


def _list_properties(node: AnyNodeType) -> Iterator[Property]:
    struct = inspect.type_info(node.parameters)
    if not isinstance(struct, inspect.StructType):
        raise TypeError(f"parameters of node type `{node.name}` must be a struct")
    for index, field in enumerate(struct.fields):
        kind, schema, extra = _unwrap_type(field)
        values = map(str, kind.values) if isinstance(kind, inspect.LiteralType) else ()
        yield Property(
            index=index,
            name=field.encode_name,
            display_name=schema.get("title", field.encode_name),
            description=schema.get("description", ""),
            type=_JSON_TYPE_BY_FIELD_TYPE.get(type(kind), "string"),
            required=field.required,
            secret=bool(extra.get("secret")),
            editable=bool(extra.get("output")),
            enum={value: value for value in values} or None,
            default_value=None if field.default is msgspec.NODEFAULT else field.default,
            ui_component=extra.get("ui") or None,
            ui_component_group=extra.get("uiGroup") or None,
        )


def _unwrap_type(field: inspect.Field) -> tuple[inspect.Type, dict[str, Any], dict[str, Any]]:
    """Return the plain type of a field and the arguments of `parameter_meta`."""
    kind = field.type
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while isinstance(kind, inspect.Metadata | inspect.UnionType):
        if isinstance(kind, inspect.UnionType):
            kind = kind.types[0]
            continue
        schema = {**(kind.extra_json_schema or {}), **schema}
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    return kind, schema, extra


@dataclass(frozen=True)
class ConsoleEditors:
    """The start nodes that the editors of consoles support."""

    rpc: RpcClient

    async def list_start_nodes(self, user: Principal, accept: str) -> frozenset[str] | None:
        """Return the start nodes that the editor of the calling console can create.

        None means all start nodes. `accept` is the header of the request.
        """
        if user.uses_own_console or accept != CONSOLE_ACCEPT_HEADER:
            return None
        try:
            request = LoginRef(user.family)
            pages = await self.rpc.call(HAS_LIVE_PAGES, request, LivePages)
        except Unavailable as error:
            log.warning("the version of a console is unknown, assuming 1.2: %s", error)
            return V1_2_START_NODES
        return V1_2_START_NODES if pages.any else V1_1_START_NODES


CATALOGUE_FUNCTIONS = (Function.WORKFLOW_VIEW, Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


@get("/", guards=[allow_holders(*CATALOGUE_FUNCTIONS)])
async def list_components(
    request: HttpRequest,
    registry: NamedDependency[NodeRegistry],
    editors: NamedDependency[ConsoleEditors],
) -> dict[str, list[Component]]:
    """List node types by group. `data` is JSON text.

    An existing console gets only the start nodes that its editor supports.
    """
    accept = request.headers.get("accept", "")
    return build_catalogue(registry, await editors.list_start_nodes(get_principal(request), accept))


@get("/{name:str}", guards=[allow_holders(*CATALOGUE_FUNCTIONS)])
async def get_component(
    registry: NamedDependency[NodeRegistry],
    name: Annotated[str, PathParameter(description="Name of the node type, for example `code`.")],
) -> str:
    """Get a node type, its parameters and its outputs as JSON text."""
    node = registry.find(name)
    if node is None:
        raise NotFound(f"node type `{name:.50}` does not exist", field="name")
    return render_component(node)


@get("/languages", guards=[allow_holders(*CATALOGUE_FUNCTIONS)])
async def list_languages() -> Languages:
    """List the supported languages of code and conditions."""
    return Languages(**LANGUAGES_BY_USE)


@dataclass(frozen=True)
class ComponentHandlerDependencies:
    """Dependencies of the operations on node types."""

    registry: NodeRegistry
    editors: ConsoleEditors


def component_router(handlers: ComponentHandlerDependencies) -> Router:
    """Return the router below `/workflow`."""
    return route_operations(globals(), "/components", dependencies=build_dependencies(handlers))
