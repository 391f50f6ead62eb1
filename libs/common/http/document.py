"""The OpenAPI document of a service, adjusted for generators of clients.

Handlers declare two options that Litestar does not know: `body=`, the type of a body that the
handler decodes itself, and `example=`, a valid request body.
Litestar documents the constraints of fields, but not those of their items, values and alternatives
(`ConstraintSchemas`); it also omits bounds of 0.
The docstring of a struct, and those under its fields, describe its schema (`StructDescriptions`);
`glossary` describes the fields and parameters that are common to many operations.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, get_args

import msgspec
from litestar import Litestar, Request
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Reference, Schema
from litestar.params import ParameterKwarg
from litestar.plugins import OpenAPISchemaPlugin
from litestar.routes import HTTPRoute
from litestar.typing import FieldDefinition

from libs.common.glossary import add_descriptions, describe_fields, find_description
from libs.common.http.guards import Guard, list_guarded_operations
from libs.common.http.ids import describe_id

_NUMBER_CONSTRAINTS = {
    "ge": "minimum",
    "gt": "exclusive_minimum",
    "le": "maximum",
    "lt": "exclusive_maximum",
    "multiple_of": "multiple_of",
}
_TEXT_CONSTRAINTS = {"pattern": "pattern", "min_length": "min_length", "max_length": "max_length"}
_ARRAY_CONSTRAINTS = {"min_length": "min_items", "max_length": "max_items"}
_OBJECT_CONSTRAINTS = {"min_length": "min_properties", "max_length": "max_properties"}
_CONSTRAINTS_BY_TYPE = {
    "integer": _NUMBER_CONSTRAINTS,
    "number": _NUMBER_CONSTRAINTS,
    "string": _TEXT_CONSTRAINTS,
    "array": _ARRAY_CONSTRAINTS,
    "object": _OBJECT_CONSTRAINTS,
}
"""The constraints of each JSON type, by their names in `msgspec.Meta` and in a schema."""


class ConstraintSchemas(OpenAPISchemaPlugin):
    """Documents types that are annotated with `msgspec.Meta`."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        """Return whether the type of a field is annotated with `msgspec.Meta`."""
        return not field_definition.is_union and bool(_constraints(field_definition))

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Any:
        """Return the schema of the plain type with the constraints of its annotations."""
        plain = FieldDefinition.from_annotation(
            field_definition.annotation, name=field_definition.name
        )
        schema: Schema | Reference = schema_creator.for_field_definition(plain)
        if isinstance(schema, Schema) and isinstance(schema.type, str):
            for meta in _constraints(field_definition):
                for name, key in _CONSTRAINTS_BY_TYPE.get(schema.type, {}).items():
                    value = getattr(meta, name)
                    if value is not None:
                        setattr(schema, key, value)
        return schema


class StructDescriptions(OpenAPISchemaPlugin):
    """Describes structs and their fields by their docstrings."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        """Return whether the type of a field is a struct."""
        return not field_definition.is_union and field_definition.is_subclass_of(msgspec.Struct)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Any:
        """Return Litestar's schema of a struct with descriptions."""
        plugin = next(
            plugin
            for plugin in schema_creator.plugins
            if plugin is not self and schema_creator.plugin_supports_field(plugin, field_definition)
        )
        kind = field_definition.origin or field_definition.annotation
        schema = plugin.to_openapi_schema(field_definition, schema_creator)
        schema.description = inspect.getdoc(kind)
        for name, text in describe_fields(kind).items():
            field = schema.properties[name]
            field.description = " ".join(filter(None, (text, field.description)))
        return schema


def add_zero_bounds(parameters: Iterable[dict[str, Any]], handler: HTTPRouteHandler) -> None:
    """Add the lower bound 0, which Litestar omits, to documented parameters of an operation."""
    fields = handler.parsed_fn_signature.parameters.values()
    bounds_by_name = {
        field.kwarg_definition.name or field.name: field.kwarg_definition
        for field in fields
        if isinstance(field.kwarg_definition, ParameterKwarg)
    }
    for parameter in parameters:
        if parameter["name"] in bounds_by_name and bounds_by_name[parameter["name"]].ge == 0:
            parameter["schema"].setdefault("minimum", 0)


def _constraints(field: FieldDefinition) -> list[msgspec.Meta]:
    return [meta for meta in field.metadata if isinstance(meta, msgspec.Meta)]


CALLER_EXTENSION = "x-thingway-caller"
"""The permitted callers of an operation: `{kind, functions?, superAdmin?}`, absent on public
operations. The gateway's document has security requirements instead."""
BODY, EXAMPLE = "body", "example"
_SCHEMA_REF_PREFIX = "#/components/schemas/"
_JSON_MEDIA_TYPE = "application/json"


def operation_id(handler: HTTPRouteHandler, *_: Any) -> str:
    """Return the operation id of a handler: `addDevice` of `add_device`."""
    first, *rest = handler.handler_name.split("_")
    return first + "".join(map(str.capitalize, rest))


class DocumentPlugin(JsonRenderPlugin):
    """Renders the OpenAPI document."""

    def __init__(self) -> None:
        super().__init__()
        self._rendered = b""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the document as JSON, rendered at the first call."""
        if not self._rendered:
            complete_document(openapi_schema, request.app)
            self._rendered = super().render(request, openapi_schema)
        return self._rendered


def complete_document(document: dict[str, Any], app: Litestar) -> None:
    """Add the options of handlers, name schemas, and correct unions."""
    for path, method, handler in _iterate_operations(app):
        operation = document["paths"][path][method]
        if BODY in handler.opt:
            _add_body(document, operation, handler.opt[BODY])
        elif _may_lack_body(handler):
            operation["requestBody"]["required"] = False
        if EXAMPLE in handler.opt:
            operation["requestBody"]["content"][_JSON_MEDIA_TYPE]["example"] = handler.opt[EXAMPLE]
        parameters = operation.get("parameters", ())
        _describe_parameters(parameters)
        add_zero_bounds(parameters, handler)
        _name_body_schemas(document, operation)
    _correct_schemas(document)
    _name_schemas(document)
    _add_callers(document, app)


def _iterate_operations(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                if handler.resolve_include_in_schema():
                    for method in handler.http_methods:
                        yield route.path_format, method.lower(), handler


def _describe_parameters(parameters: Iterable[dict[str, Any]]) -> None:
    """Describe the parameters without a description by the glossary."""
    for parameter in parameters:
        if text := find_description(parameter["name"]):
            parameter.setdefault("description", text)


def _may_lack_body(handler: HTTPRouteHandler) -> bool:
    """Return whether a body is optional; Litestar documents every body as required."""
    data = handler.parsed_fn_signature.parameters.get("data")
    return data is not None and data.has_default


def _add_body(document: dict[str, Any], operation: dict[str, Any], body: Any) -> None:
    (schema,), components = msgspec.json.schema_components(
        [body], schema_hook=describe_id, ref_template=_SCHEMA_REF_PREFIX + "{name}"
    )
    add_descriptions(components, get_args(body))
    document["components"]["schemas"].update(components)
    operation["requestBody"] = {"required": True, "content": {_JSON_MEDIA_TYPE: {"schema": schema}}}


def _name_body_schemas(document: dict[str, Any], operation: dict[str, Any]) -> None:
    """Move the inline schemas of a body to the named schemas, and refer to them."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        choices = media["schema"].get("oneOf", [])
        for at, schema in enumerate(choices):
            if "title" in schema:
                document["components"]["schemas"][schema["title"]] = schema
                choices[at] = {"$ref": _SCHEMA_REF_PREFIX + schema["title"]}


def _add_callers(document: dict[str, Any], app: Litestar) -> None:
    for operation in list_guarded_operations(app):
        item = document.get("paths", {}).get(operation.path, {})
        if operation.guard is not None and operation.method.lower() in item:
            item[operation.method.lower()][CALLER_EXTENSION] = _describe_caller(operation.guard)


def _describe_caller(guard: Guard) -> dict[str, Any]:
    caller: dict[str, Any] = {"kind": guard.kind.value}
    if guard.functions:
        caller["functions"] = sorted(guard.functions)
    if guard.super_admin:
        caller["superAdmin"] = True
    return caller


def _iterate_objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects, inner objects before outer ones."""
    for value in node.values() if isinstance(node, dict) else node:
        if isinstance(value, dict | list):
            yield from _iterate_objects(value)
    if isinstance(node, dict):
        yield node


def _correct_schemas(document: dict[str, Any]) -> None:
    """Correct constructs that generators of clients do not understand."""
    for node in _iterate_objects(document):
        _correct_choices(node)
        _move_bounds(node)
        if node.get("default") == "" or (node.get("const") and "default" in node):
            del node["default"]
        if "const" in (constant := _properties(node).get("status", {})):
            constant["type"] = "string"
            node["required"] = sorted({*node.get("required", ()), "status"})


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    properties = node.get("properties")
    return properties if isinstance(properties, dict) else {}


def _correct_choices(node: dict[str, Any]) -> None:
    """Remove `integer` next to `number`, and move null out of enumerations."""
    choices = node.get("oneOf")
    if isinstance(choices, list) and {"type": "number"} in choices:
        node["oneOf"] = [choice for choice in choices if choice != {"type": "integer"}]
    values = node.get("enum")
    if isinstance(values, list) and None in values:
        del node["enum"], node["type"]
        plain = {"type": "string", "enum": [value for value in values if value is not None]}
        node["oneOf"] = [plain, {"type": "null"}]


_BOUND_NAMES = (
    "enum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
)


def _move_bounds(node: dict[str, Any]) -> None:
    """Move the bounds of a nullable value to the alternative that they bound."""
    choices = node.get("oneOf")
    if isinstance(choices, list) and len(choices) == 2 and {"type": "null"} in choices:  # noqa: PLR2004 - a type and null
        bounded = choices[0] if choices[1] == {"type": "null"} else choices[1]
        if "$ref" not in bounded:
            bounded.update({name: node.pop(name) for name in _BOUND_NAMES if name in node})


def _name_schemas(document: dict[str, Any]) -> None:
    """Name schemas by their types, and remove titles, which are names of Python types."""
    schemas = document["components"]["schemas"]
    names = {key: schema_name(schema.pop("title", key)) for key, schema in schemas.items()}
    if len(set(names.values())) < len(names):
        raise ValueError(f"schemas share a name: {sorted(names.items())}")
    document["components"]["schemas"] = {names[key]: entry for key, entry in schemas.items()}
    for node in _iterate_objects(document):
        if isinstance(target := node.get("$ref"), str):
            name = target.removeprefix(_SCHEMA_REF_PREFIX)
            node["$ref"] = _SCHEMA_REF_PREFIX + names[name] if name in names else target


_TITLE_PART = re.compile(r"\w+|[\[\],]")
_TITLE_WORD_BY_TYPE = {
    "str": "Text",
    "int": "Number",
    "bool": "Flag",
    "NoneType": "Empty",
    "dict": "Map",
}
_UNION_TYPES = {"Union", "UnionType", "Optional"}


def schema_name(title: str) -> str:
    """Return a name for a type's title: `DevicePageAnswer` for `Answer[Page[Device]]`."""
    return _pop_name(_TITLE_PART.findall(title))


def _pop_name(parts: list[str]) -> str:
    """Remove the parts of one type from the list and return its name."""
    kind, inner = parts.pop(0), []
    if parts and parts[0] == "[":
        while parts.pop(0) != "]":
            inner.append(_pop_name(parts))
    if kind in _UNION_TYPES:
        return _union_name(inner)
    word = _TITLE_WORD_BY_TYPE.get(kind, kind[0].upper() + kind[1:])
    return (inner[-1] if inner else "") + word


def _union_name(names: list[str]) -> str:
    """Return the name of a union, such as `DeviceListOrPage`."""
    first, *others = names
    return "Or".join([first, *(_name_suffix(first, name) for name in others)])


def _name_suffix(first: str, name: str) -> str:
    """Return the end of a name after the prefix that it shares with `first`."""
    shared = sum(
        takewhile(bool, (letter == other for letter, other in zip(first, name, strict=False)))
    )
    return name[shared:]
