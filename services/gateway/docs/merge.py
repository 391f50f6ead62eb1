"""Makes one OpenAPI 3.1 document of those of the services."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

from services.gateway.docs.apis import api_of
from services.gateway.docs.names import Document, apart
from services.gateway.docs.refusals import COMPONENTS, documented
from services.gateway.docs.security import SCHEMES, security
from services.gateway.routes import Route

METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


def merge(documents: Mapping[str, Document], routes: tuple[Route, ...]) -> Document:
    """Merge the documents, by the names of their services, into one of the public paths."""
    merged: Document = {
        "openapi": "3.1.0",
        "info": {"title": "Thingway", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {},
        "components": deepcopy(COMPONENTS) | {"securitySchemes": SCHEMES},
    }
    for service, document in apart(documents).items():
        for section, entries in document.get("components", {}).items():
            if section != "securitySchemes":
                merged["components"].setdefault(section, {}).update(entries)
        for path, item in document.get("paths", {}).items():
            route = _route(routes, service, path)
            if route is not None:
                merged["paths"][path] = _public(service, route, path, item)
    merged["tags"] = [{"name": name} for name in sorted(_tags(merged))]
    return merged


def _tags(document: Document) -> set[str]:
    return {
        tag
        for item in document["paths"].values()
        for operation in _operations(item)
        for tag in operation["tags"]
    }


def _route(routes: tuple[Route, ...], service: str, path: str) -> Route | None:
    for route in routes:
        if route.upstream == service and not route.rewrite and route.matches(path.encode()):
            return route
    return None


def _public(service: str, route: Route, path: str, item: Document) -> Document:
    for operation in _operations(item):
        tags = operation.get("tags") or [service.capitalize()]
        operation["tags"] = [f"{api_of(path).value}: {tag}" for tag in tags]
        operation["security"] = security(route, operation)
        responses = operation.setdefault("responses", {})
        for status, response in documented(
            path, route.credential, has_body="requestBody" in operation
        ).items():
            responses.setdefault(status, response)
    return item


def _operations(item: Document) -> Iterator[Document]:
    for method, operation in item.items():
        if method in METHODS:
            yield operation
