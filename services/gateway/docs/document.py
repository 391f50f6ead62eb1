"""Merging of the services' OpenAPI documents into one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from enum import Enum
from typing import Any

from libs.common.envelope import OPEN_API_PREFIXES
from libs.common.http.document import CALLER_EXTENSION
from libs.common.identity import Kind
from libs.common.identity.functions import Function
from services.gateway.routes import Credential, Route

Document = dict[str, Any]
Key = tuple[str, str]
"""Section and name of a component: `("schemas", "Device")`."""


class Api(Enum):
    """A part of the document; the value is the prefix of its operations' tags."""

    DEVICE = "Device API"
    """For applications and devices."""
    MANAGEMENT = "Management API"
    """For consoles."""


DOCUMENTS = {"device.json": Api.DEVICE, "management.json": Api.MANAGEMENT}
"""The documents of single APIs, by file name."""


def find_api(path: str) -> Api:
    """Return the API of a path."""
    return Api.DEVICE if path.startswith(OPEN_API_PREFIXES) else Api.MANAGEMENT


def extract_api(document: Document, api: Api) -> Document:
    """Return the operations of one API with their components, from the merged document."""
    paths = {path: item for path, item in document["paths"].items() if find_api(path) is api}
    reached = _collect_references(document, paths)
    components = {
        section: {
            name: entry
            for name, entry in entries.items()
            if section == "securitySchemes" or (section, name) in reached
        }
        for section, entries in document["components"].items()
    }
    tags = [tag for tag in document["tags"] if tag["name"].startswith(api.value)]
    info = document["info"] | {"title": f"{document['info']['title']} {api.value}"}
    return document | {"info": info, "tags": tags, "paths": paths, "components": components}


def _collect_references(document: Document, paths: Document) -> set[Key]:
    reached: set[Key] = set()
    reached_keys: Iterator[Key] = references(paths)
    while new := set(reached_keys) - reached:
        reached |= new
        reached_keys = (
            key
            for section, name in new
            for key in references(document["components"].get(section, {}).get(name))
        )
    return reached


_PREFIX = "#/components/"


def rename_clashing(documents: Mapping[str, Document]) -> dict[str, Document]:
    """Return copies of the documents whose components have unique names.

    A component that several services define equally is shared. If the definitions differ, or refer
    to components that differ, the service's name is prepended in each document.
    """
    clashing = _find_clashing(documents)
    return {
        service: _rename_components(service, document, clashing)
        for service, document in documents.items()
    }


def _components(document: Document) -> Iterator[tuple[Key, Any]]:
    for section, entries in document.get("components", {}).items():
        for name, entry in entries.items():
            yield (section, name), entry


def _find_clashing(documents: Mapping[str, Document]) -> set[Key]:
    definitions: dict[Key, list[Any]] = defaultdict(list)
    for document in documents.values():
        for key, entry in _components(document):
            definitions[key].append(entry)
    shared = {key: entries for key, entries in definitions.items() if len(entries) > 1}
    clashing = {
        key for key, entries in shared.items() if any(entry != entries[0] for entry in entries)
    }
    grown = True
    while grown:
        reached = {key for key, entries in shared.items() if set(references(entries)) & clashing}
        grown = not reached <= clashing
        clashing |= reached
    return clashing


def references(node: Any) -> Iterator[Key]:
    """Yield the components that a node refers to."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith(_PREFIX):
            section, _, name = target.removeprefix(_PREFIX).partition("/")
            yield section, name
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def _rename_components(service: str, document: Document, clashing: set[Key]) -> Document:
    names = {key: f"{service.capitalize()}{key[1]}" for key in clashing}
    document = _rename_references(deepcopy(document), names)
    for section, entries in document.get("components", {}).items():
        document["components"][section] = {
            names.get((section, name), name): entry for name, entry in entries.items()
        }
    return document


def _rename_references(node: Any, names: Mapping[Key, str]) -> Any:
    if isinstance(node, list):
        return [_rename_references(value, names) for value in node]
    if not isinstance(node, dict):
        return node
    redirected = {key: _rename_references(value, names) for key, value in node.items()}
    for section, name in references({"$ref": node.get("$ref")}):
        if (section, name) in names:
            redirected["$ref"] = f"{_PREFIX}{section}/{names[section, name]}"
    return redirected


SUPER_ADMIN = "super_admin"
_USER = "user"
_SECURITY_BY_KIND: dict[Kind, list[dict[str, list[str]]]] = {
    Kind.APPLICATION: [{"bearer": []}, {"accessToken": []}],
    Kind.DEVICE: [{"deviceKey": []}],
    Kind.USER: [{_USER: []}],
}
_FUNCTION_SCOPE_TEXT = "Granted by a role, or to super-admins; not requested at login"

SCHEMES: dict[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "Applications: a token of `/oauth/token`",
    },
    "accessToken": {
        "type": "apiKey",
        "in": "query",
        "name": "access_token",
        "description": "The same token as a query parameter",
    },
    "deviceKey": {"type": "http", "scheme": "basic", "description": "SN and device key"},
    _USER: {
        "type": "oauth2",
        "description": "Users: a token of `/oauth2/token`, as `Authorization: Bearer`",
        "flows": {
            "password": {
                "tokenUrl": "/oauth2/token",
                "refreshUrl": "/oauth2/token",
                "scopes": {
                    **{function.value: _FUNCTION_SCOPE_TEXT for function in Function},
                    SUPER_ADMIN: "Only super-admins",
                },
            }
        },
    },
}


def security_requirements(route: Route, operation: dict[str, Any]) -> list[dict[str, list[str]]]:
    """Return the security requirements of `operation`; any one suffices.

    The permitted callers that the service documents are removed, and converted into scopes.
    """
    caller = operation.pop(CALLER_EXTENSION, {})
    if route.credential is Credential.NONE:
        return []
    if caller.get("superAdmin"):
        return [{_USER: [SUPER_ADMIN]}]
    if functions := caller.get("functions"):
        return [{_USER: [function]} for function in functions]
    return [requirement for kind in sorted(route.kinds) for requirement in _SECURITY_BY_KIND[kind]]


_CALLER_SENTENCES = {
    "401": "The credential is missing, invalid or expired",
    "413": "The body is larger than the limit",
    "429": "Too many requests; retry after the seconds in `Retry-After`",
    "502": "The service closed the connection",
    "503": "Overloaded or starting; retry after the seconds in `Retry-After`",
    "504": "The service did not answer in time",
}
_WITH_RETRY = {"429", "503"}
_OPEN_API, _CONSOLE = "Gateway", "GatewayConsole"
"""Prefixes of components' names, by envelope."""


def _response(envelope: str, status: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{envelope}Error"}
    response: dict[str, Any] = {
        "description": _CALLER_SENTENCES[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in _WITH_RETRY:
        response["headers"] = {
            "Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}
        }
    return response


def _schema(request_id: str, *names: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An error of the gateway",
        "required": ["status", request_id, *names],
        "properties": {
            "status": {"const": "Failed"},
            request_id: {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            **{name: {"type": "string"} for name in names},
            **more,
        },
    }


COMPONENTS: dict[str, Any] = {
    "schemas": {
        f"{_OPEN_API}Error": _schema("requestId", "errCode", "errMsg"),
        f"{_CONSOLE}Error": _schema("request_id", "error_code", "error_message", data={}),
    },
    "responses": {
        f"{envelope}{status}": _response(envelope, status)
        for envelope in (_OPEN_API, _CONSOLE)
        for status in _CALLER_SENTENCES
    },
}
"""The components that `gateway_responses` refers to."""


def gateway_responses(path: str, credential: Credential, *, has_body: bool) -> dict[str, Any]:
    """Return the responses of the gateway for an operation at `path`, by status."""
    envelope = _OPEN_API if find_api(path) is Api.DEVICE else _CONSOLE
    statuses = set(_CALLER_SENTENCES)
    if credential is Credential.NONE:
        statuses.discard("401")
    if not has_body:
        statuses.discard("413")
    return {
        status: {"$ref": f"#/components/responses/{envelope}{status}"}
        for status in sorted(statuses)
    }


METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


def merge(documents: Mapping[str, Document], routes: tuple[Route, ...]) -> Document:
    """Return one document of the public paths, merged from documents by service."""
    merged: Document = {
        "openapi": "3.1.0",
        "info": {"title": "Thingway", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {},
        "components": deepcopy(COMPONENTS) | {"securitySchemes": SCHEMES},
    }
    for service, document in rename_clashing(documents).items():
        for section, entries in document.get("components", {}).items():
            if section != "securitySchemes":
                merged["components"].setdefault(section, {}).update(entries)
        for path, item in document.get("paths", {}).items():
            route = _find_route(routes, service, path)
            if route is not None:
                merged["paths"][path] = _add_gateway_parts(service, route, path, item)
    merged["tags"] = [{"name": name} for name in sorted(_tags(merged))]
    return merged


def _tags(document: Document) -> set[str]:
    return {
        tag
        for item in document["paths"].values()
        for operation in _operations(item)
        for tag in operation["tags"]
    }


def _find_route(routes: tuple[Route, ...], service: str, path: str) -> Route | None:
    for route in routes:
        if route.upstream == service and not route.rewrite and route.matches(path.encode()):
            return route
    return None


def _add_gateway_parts(service: str, route: Route, path: str, item: Document) -> Document:
    for operation in _operations(item):
        tags = operation.get("tags") or [service.capitalize()]
        operation["tags"] = [f"{find_api(path).value}: {tag}" for tag in tags]
        operation["security"] = security_requirements(route, operation)
        responses = operation.setdefault("responses", {})
        for status, response in gateway_responses(
            path, route.credential, has_body="requestBody" in operation
        ).items():
            responses.setdefault(status, response)
    return item


def _operations(item: Document) -> Iterator[Document]:
    for method, operation in item.items():
        if method in METHODS:
            yield operation
