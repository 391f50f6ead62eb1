"""Where an operation takes which values, as the OpenAPI document of the platform has it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.http.ids import MAX_ID

JSON = "application/json"
Schema = dict[str, Any]
Steps = tuple[str | int, ...]
"""The way into a body: names of fields, and 0 for the first item of an array."""


@dataclass(frozen=True)
class Place:
    """An input of an operation."""

    method: str
    path: str
    source: str
    """`path`, `query` or `body`."""
    steps: Steps

    @property
    def name(self) -> str:
        """The place as errors name it, such as `resources[0].id`."""
        text = ""
        for step in self.steps:
            text += f"[{step}]" if isinstance(step, int) else f".{step}"
        return text.removeprefix(".")

    def body(self, value: Any, beside: Mapping[str, Any] = {}) -> Any:
        """The smallest body with `value` at the place and fields `beside` it."""
        for step in reversed(self.steps):
            if isinstance(step, int):
                value = [value]
            else:
                value, beside = {**beside, step: value}, {}
        return value

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.source} {self.name}"


def is_id(schema: Schema) -> bool:
    """Whether the value is a numeric id, in one of its spellings."""
    if schema.get("type") == "integer":
        return schema.get("maximum") == MAX_ID
    return str(schema.get("pattern")) in {"^[0-9]{1,16}$", "^[0-9]{0,16}$"}


def is_text(schema: Schema) -> bool:
    """Whether the value is a text that may be anything."""
    return schema.get("type") == "string" and not {"enum", "const"} & schema.keys()


def places(document: Schema, wanted: Callable[[Schema], bool]) -> list[Place]:
    """The places that take values which `wanted` accepts, each once."""
    schemas = document["components"]["schemas"]
    found: dict[Place, None] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for source, name, schema in _inputs(operation):
                for steps, one in _walk(schema, schemas, (name,) if name else ()):
                    if wanted(one):
                        found[Place(method.upper(), path, source, steps)] = None
    return list(found)


def _inputs(operation: Schema) -> Iterator[tuple[str, str, Schema]]:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] in {"path", "query"}:
            yield parameter["in"], parameter["name"], parameter["schema"]
    content = operation.get("requestBody", {}).get("content", {})
    if JSON in content:
        yield "body", "", content[JSON]["schema"]


def _walk(
    schema: Schema, schemas: Schema, steps: Steps, above: tuple[str, ...] = ()
) -> Iterator[tuple[Steps, Schema]]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from _walk(schemas[name], schemas, steps, (*above, name))
        return
    for key in ("oneOf", "anyOf", "allOf"):
        for choice in schema.get(key, ()):
            yield from _walk(choice, schemas, steps, above)
    yield steps, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _walk(inner, schemas, (*steps, name), above)
    if isinstance(schema.get("items"), dict):
        yield from _walk(schema["items"], schemas, (*steps, 0), above)
