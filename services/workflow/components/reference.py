"""Generator of `docs/reference/nodes.md` from parameter structs of node types.

Run `python -m services.workflow.components.reference > docs/reference/nodes.md`. A unit test
fails when the page differs from the structs.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

import services.workflow.nodes
from libs.common.glossary import read_field_docstrings
from services.workflow.nodes.base import AnyNodeType, NodeType, PaletteGroup, Step

Schema = dict[str, Any]

_PAGE_HEADER = """# Flow nodes

This page lists the fields of `data.parameters` of each node type. [Flows](flows.md) explains how
nodes work together, and how requests are [signed](flows.md#other-systems). Texts may contain
[references](flows.md#nodes). Null stands for the default.
"""


def render_page() -> str:
    """Return the page."""
    parts = [_PAGE_HEADER]
    for node in sorted(
        iterate_node_types(), key=lambda node: (list(PaletteGroup).index(node.group), node.name)
    ):
        parts += _render_section(node)
    return "\n".join(parts)


def iterate_node_types() -> Iterator[type[AnyNodeType]]:
    """Yield all node types."""
    package = services.workflow.nodes
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for node_type in vars(importlib.import_module(module.name)).values():
            is_local = isinstance(node_type, type) and node_type.__module__ == module.name
            if is_local and issubclass(node_type, NodeType) and "name" in vars(node_type):
                yield node_type


def _render_section(node: type[AnyNodeType]) -> Iterator[str]:
    (root,), shapes = msgspec.json.schema_components([node.parameters])
    name = _resolve_schema(root)
    kind = "" if issubclass(node, Step) else " It starts a flow."
    yield f"\n## `{node.name}`\n\n{node.description}.{kind}\n"
    yield from _render_table(shapes.pop(name), node.parameters)
    for name, shape in shapes.items():
        yield f"\n**{name}**: {shape.get('description', '')}\n"
        yield from _render_table(shape, vars(sys.modules[node.__module__])[name])


def _render_table(shape: Schema, kind: type[msgspec.Struct]) -> Iterator[str]:
    yield from ("| name | type | default | meaning |", "|---|---|---|---|")
    needed, docstrings = shape.get("required", ()), read_field_docstrings(kind)
    for name, field in shape["properties"].items():
        yield _render_row(name, field, docstrings.get(name, ""), needed=name in needed)


def _render_row(name: str, field: Schema, docstring: str, *, needed: bool) -> str:
    default = "required" if needed else f"`{json.dumps(field.get('default'))}`"
    choices = (field, *field.get("anyOf", ()))
    descriptions = [choice["description"] for choice in choices if "description" in choice]
    texts = [text.removesuffix(".") for text in (*descriptions[:1], docstring) if text]
    notes = "; ".join(filter(None, (". ".join(texts), _describe_bounds(field))))
    return f"| `{name}` | {_describe_type(field)} | {default} | {' '.join(notes.split())} |"


def _describe_type(field: Schema) -> str:
    if "$ref" in field:
        return f"**{_resolve_schema(field)}**"
    if "anyOf" in field:
        return " or ".join(
            _describe_type(choice) for choice in field["anyOf"] if choice.get("type") != "null"
        )
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "items" in field:
        return f"list of {_describe_type(field['items'])}"
    if field.get("type") == "object":
        return f"map of {_describe_type(field.get('additionalProperties') or {})}"
    return str(field.get("type", "any value"))


def _describe_bounds(field: Schema) -> str:
    """Return the bounds in words, including those of a type in a union with null."""
    bounds = {
        key: value for choice in field.get("anyOf", ()) for key, value in choice.items()
    } | field
    least, maximum = (
        next((bounds[key] for key in keys if key in bounds), None)
        for keys in (
            ("minimum", "minLength", "minItems", "minProperties"),
            ("maximum", "maxLength", "maxItems", "maxProperties"),
        )
    )
    unit = " characters" if "maxLength" in bounds or "minLength" in bounds else ""
    if least is None and maximum is None:
        return ""
    if maximum is None:
        return f"at least {least}{unit}"
    return f"at most {maximum}{unit}" if least is None else f"{least} to {maximum}{unit}"


def _resolve_schema(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


if __name__ == "__main__":
    sys.stdout.write(render_page())
