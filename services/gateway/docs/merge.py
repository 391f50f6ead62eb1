"""Makes one OpenAPI 3.1 document of those of the services."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from services.gateway.docs.names import apart
from services.gateway.docs.refusals import COMPONENTS, documented
from services.gateway.routes import Credential, Route

Document = dict[str, Any]

METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})
_SECURITY: dict[Credential, list[dict[str, list[str]]]] = {
    Credential.NONE: [],
    Credential.TOKEN: [{"bearer": []}, {"accessToken": []}],
    Credential.DEVICE_KEY: [{"deviceKey": []}],
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `/oauth/token`"},
    "accessToken": {
        "type": "apiKey",
        "in": "query",
        "name": "access_token",
        "description": "The same token as a query parameter",
    },
    "deviceKey": {"type": "http", "scheme": "basic", "description": "SN and device key"},
}


def merge(documents: Mapping[str, Document], routes: tuple[Route, ...]) -> Document:
    """Merge the documents, by the names of their services, into one of the public paths."""
    merged: Document = {
        "openapi": "3.1.0",
        "info": {"title": "Thingway", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {},
        "components": deepcopy(COMPONENTS) | {"securitySchemes": _SCHEMES},
    }
    for service, document in apart(documents).items():
        _settle_numbers(document)
        for section, entries in document.get("components", {}).items():
            if section != "securitySchemes":
                merged["components"].setdefault(section, {}).update(entries)
        for path, item in document.get("paths", {}).items():
            route = _route(routes, service, path)
            if route is not None:
                merged["paths"][path] = _public(service, route, item)
    return merged


def _route(routes: tuple[Route, ...], service: str, path: str) -> Route | None:
    for route in routes:
        if route.upstream == service and not route.rewrite and route.matches(path.encode()):
            return route
    return None


def _public(service: str, route: Route, item: Document) -> Document:
    for operation in _operations(item):
        operation["tags"] = operation.get("tags") or [service]
        operation["security"] = _SECURITY[route.credential]
        if "operationId" in operation:
            operation["operationId"] = f"{service}.{operation['operationId']}"
        responses = operation.setdefault("responses", {})
        for status, response in documented(
            route.credential, has_body="requestBody" in operation
        ).items():
            responses.setdefault(status, response)
    return item


def _settle_numbers(node: Any) -> None:
    """Let `number` alone stand for "integer or number": of `oneOf` a whole one fits both."""
    if isinstance(node, list):
        for value in node:
            _settle_numbers(value)
    elif isinstance(node, dict):
        choices = node.get("oneOf")
        if isinstance(choices, list) and {"type": "number"} in choices:
            node["oneOf"] = [one for one in choices if one != {"type": "integer"}]
        for value in node.values():
            _settle_numbers(value)


def _operations(item: Document) -> Iterator[Document]:
    for method, operation in item.items():
        if method in METHODS:
            yield operation
