"""Constraints of msgspec types in the OpenAPI document, wherever a type has them.

Litestar reads the constraints of a field, and not those of its items, values and alternatives;
it also drops bounds of 0.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from litestar.handlers.http_handlers import HTTPRouteHandler
from litestar.openapi.spec import Reference, Schema
from litestar.params import ParameterKwarg
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

_NUMBER = {
    "ge": "minimum",
    "gt": "exclusive_minimum",
    "le": "maximum",
    "lt": "exclusive_maximum",
    "multiple_of": "multiple_of",
}
_TEXT = {"pattern": "pattern", "min_length": "min_length", "max_length": "max_length"}
_ARRAY = {"min_length": "min_items", "max_length": "max_items"}
_OBJECT = {"min_length": "min_properties", "max_length": "max_properties"}
_BY_TYPE = {
    "integer": _NUMBER,
    "number": _NUMBER,
    "string": _TEXT,
    "array": _ARRAY,
    "object": _OBJECT,
}
"""The constraints of each type of JSON, by their names in `msgspec.Meta` and in a schema."""


class ConstraintSchemas(OpenAPISchemaPlugin):
    """Describes types that are annotated with `msgspec.Meta`."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        """Return whether the type of a field has this annotation."""
        return not field_definition.is_union and bool(_metas(field_definition))

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Any:
        """Return the schema of the plain type with the constraints of its annotations."""
        plain = FieldDefinition.from_annotation(
            field_definition.annotation, name=field_definition.name
        )
        schema: Schema | Reference = schema_creator.for_field_definition(plain)
        if isinstance(schema, Schema) and isinstance(schema.type, str):
            for meta in _metas(field_definition):
                for name, key in _BY_TYPE.get(schema.type, {}).items():
                    value = getattr(meta, name)
                    if value is not None:
                        setattr(schema, key, value)
        return schema


def add_zero_bounds(parameters: Iterable[dict[str, Any]], handler: HTTPRouteHandler) -> None:
    """Add bounds of 0 to the documented parameters of an operation."""
    fields = handler.parsed_fn_signature.parameters.values()
    given = {
        one.kwarg_definition.name or one.name: one.kwarg_definition
        for one in fields
        if isinstance(one.kwarg_definition, ParameterKwarg)
    }
    for parameter in parameters:
        if parameter["name"] in given and given[parameter["name"]].ge == 0:
            parameter["schema"].setdefault("minimum", 0)


def _metas(field: FieldDefinition) -> list[msgspec.Meta]:
    return [one for one in field.metadata if isinstance(one, msgspec.Meta)]
