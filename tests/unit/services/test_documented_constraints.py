"""The documents of the services state every constraint of the types that they describe."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter, QueryParameter
from litestar.routes import HTTPRoute

from libs.common.http.document import BODY, complete_document
from libs.common.http.ids import describe_id
from libs.common.identity import generate_keys
from tests import apps

JSON = "application/json"
CONSTRAINTS = {
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
}
OF_PARAMETERS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "pattern": "pattern",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
}
Found = set[tuple[str, str, str]]
"""Where in a value, which constraint, and its value."""


class Documented(NamedTuple):
    """An operation and what the document says of it."""

    name: str
    handler: HTTPRouteHandler
    operation: dict[str, Any]


@pytest.fixture(scope="module", params=sorted(apps.SERVICES))
def service(request: pytest.FixtureRequest) -> tuple[list[Documented], dict[str, Any]]:
    """The documented operations of a service, and the schemas of its document."""
    app = apps.SERVICES[request.param](generate_keys()[1])
    document = app.openapi_schema.to_schema()
    complete_document(document, app)
    found = [
        Documented(f"{method} {route.path_format}", handler, item[method.lower()])
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in handler.http_methods
        if method.lower() in (item := document["paths"].get(route.path_format, {}))
    ]
    return found, document["components"]["schemas"]


def alternatives(schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas that a value may follow, without null."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    choices = [choice for key in ("anyOf", "oneOf", "allOf") for choice in schema.get(key, ())]
    for choice in choices:
        yield from alternatives(choice, schemas)
    if not choices and schema.get("type") != "null":
        yield schema


def constraints(
    schema: dict[str, Any], schemas: dict[str, Any], place: str, above: tuple[str, ...] = ()
) -> Found:
    """The constraints of a schema and of all that is inside it."""
    found: Found = set()
    for alternative in alternatives(schema, schemas):
        text = json.dumps(alternative, sort_keys=True)
        if text in above:
            continue
        inside = {
            f"{place}.{name}": value for name, value in alternative.get("properties", {}).items()
        }
        for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(alternative.get(key), dict):
                inside[place + suffix] = alternative[key]
        found |= {
            (f"{place} {alternative.get('type')}", key, str(alternative[key]).removesuffix(".0"))
            for key in CONSTRAINTS & alternative.keys()
        }
        found |= {(place, "required", name) for name in alternative.get("required", ())}
        for inner, value in inside.items():
            found |= constraints(value, schemas, inner, (*above, text))
    return found


def of_type(kind: Any) -> Found:
    """The constraints that msgspec enforces."""
    (schema,), schemas = msgspec.json.schema_components(
        [kind], schema_hook=describe_id, ref_template="#/{name}"
    )
    return constraints(schema, schemas, "")


def test_bodies_state_the_constraints_of_their_types(
    service: tuple[list[Documented], dict[str, Any]], subtests: pytest.Subtests
) -> None:
    """Also those of items, of values of objects and of alternatives, and bounds of 0."""
    operations, schemas = service
    for name, handler, operation in operations:
        data = handler.parsed_fn_signature.parameters.get("data")
        kind = handler.opt.get(BODY) or (data and data.annotation)
        content = operation.get("requestBody", {}).get("content", {})
        if kind is not None and JSON in content:
            with subtests.test(name):
                stated = constraints(content[JSON]["schema"], schemas, "")
                assert of_type(kind) - stated == set()


def test_a_body_is_required_when_the_operation_needs_it(
    service: tuple[list[Documented], dict[str, Any]],
) -> None:
    """A search without a body is valid, and documented so."""
    operations, _ = service
    for name, handler, operation in operations:
        data = handler.parsed_fn_signature.parameters.get("data")
        if data is not None:
            assert operation["requestBody"]["required"] is not data.has_default, name


def test_parameters_state_their_constraints(
    service: tuple[list[Documented], dict[str, Any]],
) -> None:
    """Those of the query and of the path."""
    operations, schemas = service
    for name, handler, operation in operations:
        documented = {one["name"]: one for one in operation.get("parameters", ())}
        for field in handler.parsed_fn_signature.parameters.values():
            given = field.kwarg_definition
            if isinstance(given, PathParameter | QueryParameter):
                parameter = documented[given.name or field.name]
                stated = {
                    (key, value) for _, key, value in constraints(parameter["schema"], schemas, "")
                }
                expected = {
                    (key, str(getattr(given, attribute)))
                    for attribute, key in OF_PARAMETERS.items()
                    if getattr(given, attribute, None) is not None
                }
                assert expected - stated == set(), (name, field.name)
