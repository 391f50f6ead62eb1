"""The catalogue of node types, made from their parameter structs.

An editor builds its palette and its forms from it: `data` of an entry is JSON text with
`component`, `properties`, `outputProperties` and `schema`, the JSON schema of all parameters with
what is nested in them.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec.inspect import (
    BoolType,
    CustomType,
    DictType,
    Field,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from services.workflow.nodes.base import AnyNode, Group, Registry

LANGUAGES = {
    "code": ["js", "python"],
    "expression": ["condition", "cel", "js", "python"],
}
"""What code and conditions may be written in."""

_NAMES: dict[type[Type], str] = {
    StrType: "string",
    BoolType: "boolean",
    IntType: "integer",
    FloatType: "number",
    ListType: "array",
    DictType: "object",
    StructType: "object",
    CustomType: "object",
}


class Component(msgspec.Struct):
    """A node type in the catalogue."""

    name: str
    title: str
    data: str
    """JSON text."""


class Languages(msgspec.Struct):
    """Languages by where they are written."""

    code: list[str]
    expression: list[str]


class _About(msgspec.Struct, rename="camel"):
    name: str
    title: str
    description: str
    type: str
    testable: bool
    kind: Literal["component"] = "component"


class Property(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A parameter, as editors read it."""

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


def catalogue(
    registry: Registry, starts: frozenset[str] | None = None
) -> dict[str, list[Component]]:
    """Node types by group; each group is there, even when empty.

    With `starts` only these start nodes are listed.
    """
    groups: dict[str, list[Component]] = {group.value: [] for group in Group}
    for node in registry:
        if starts is not None and node.group == Group.ENTRY and node.name not in starts:
            continue
        groups[node.group].append(Component(node.name, node.title, describe(node)))
    return groups


def describe(node: AnyNode) -> str:
    """`data` of a node type."""
    about = _About(
        name=node.name,
        title=node.title,
        description=node.description,
        type=node.group,
        testable=node.testable,
    )
    properties: dict[str, Property] = {}
    outputs: dict[str, Property] = {}
    for property_, is_output in _properties(node):
        (outputs if is_output else properties)[property_.name] = property_
    document = {
        "component": about,
        "properties": properties,
        "outputProperties": outputs,
        "schema": msgspec.json.schema(node.parameters),
    }
    return msgspec.json.encode(document).decode()


def _properties(node: AnyNode) -> Iterator[tuple[Property, bool]]:
    struct = type_info(node.parameters)
    if not isinstance(struct, StructType):
        raise TypeError(f"parameters of {node.name} are no struct")
    for index, field in enumerate(struct.fields):
        kind, schema, extra = _taken_apart(field)
        is_output = bool(extra.get("output"))
        yield (
            Property(
                index=index,
                name=field.encode_name,
                display_name=schema.get("title", field.encode_name),
                description=schema.get("description", ""),
                type=_NAMES.get(type(kind), "string"),
                required=field.required,
                secret=bool(extra.get("secret")),
                editable=is_output,
                enum=_labels(kind) if isinstance(kind, LiteralType) else None,
                default_value=None if field.default is msgspec.NODEFAULT else field.default,
                ui_component=extra.get("ui") or None,
                ui_component_group=extra.get("uiGroup") or None,
            ),
            is_output,
        )


def _labels(kind: LiteralType) -> dict[str, str]:
    return {str(value): str(value) for value in kind.values}


def _taken_apart(field: Field) -> tuple[Type, dict[str, Any], dict[str, Any]]:
    """The plain type of a field, and what `parameter` says of it."""
    kind = field.type
    schema: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, UnionType):
            kind = kind.types[0]
            continue
        schema = {**(kind.extra_json_schema or {}), **schema}
        extra = {**(kind.extra or {}), **extra}
        kind = kind.type
    return kind, schema, extra
