"""Merging of the services' OpenAPI documents into one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from enum import Enum
from typing import Any

from libs.common.envelope import OPEN_API_PREFIXES
from libs.common.http.document import CALLER_EXTENSION
from libs.common.identity import PrincipalKind
from libs.common.identity.functions import Function
from services.gateway.routes import CredentialType, Route

OpenApiDocument = dict[str, Any]
ComponentKey = tuple[str, str]
"""Section and name of a component: `("schemas", "Device")`."""


class ApiPart(Enum):
    """A part of the document; the value is the prefix of its operations' tags."""

    DEVICE = "Device API"
    """For applications and devices."""
    MANAGEMENT = "Management API"
    """For consoles."""


API_BY_FILE_NAME = {"device.json": ApiPart.DEVICE, "management.json": ApiPart.MANAGEMENT}
"""API by the file name under which its document is served."""


def find_api(path: str) -> ApiPart:
    """Return the API of a path."""
    return ApiPart.DEVICE if path.startswith(OPEN_API_PREFIXES) else ApiPart.MANAGEMENT


def extract_api(document: OpenApiDocument, api: ApiPart) -> OpenApiDocument:
    """Return the document of one API, extracted from the merged document."""
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


def _collect_references(document: OpenApiDocument, paths: OpenApiDocument) -> set[ComponentKey]:
    reached: set[ComponentKey] = set()
    reached_keys: Iterator[ComponentKey] = iterate_references(paths)
    while new := set(reached_keys) - reached:
        reached |= new
        reached_keys = (
            key
            for section, name in new
            for key in iterate_references(document["components"].get(section, {}).get(name))
        )
    return reached


_COMPONENT_PREFIX = "#/components/"


def rename_clashing_components(
    documents: Mapping[str, OpenApiDocument],
) -> dict[str, OpenApiDocument]:
    """Return copies of the documents whose components have unique names.

    A component that several services define equally is shared. If the definitions differ, or refer
    to components that differ, each document's component gets the service's name as a prefix.
    """
    clashing = _find_clashing(documents)
    return {
        service: _rename_components(service, document, clashing)
        for service, document in documents.items()
    }


def _iterate_components(document: OpenApiDocument) -> Iterator[tuple[ComponentKey, Any]]:
    for section, entries in document.get("components", {}).items():
        for name, entry in entries.items():
            yield (section, name), entry


def _find_clashing(documents: Mapping[str, OpenApiDocument]) -> set[ComponentKey]:
    definitions: dict[ComponentKey, list[Any]] = defaultdict(list)
    for document in documents.values():
        for key, entry in _iterate_components(document):
            definitions[key].append(entry)
    shared = {key: entries for key, entries in definitions.items() if len(entries) > 1}
    clashing = {
        key for key, entries in shared.items() if any(entry != entries[0] for entry in entries)
    }
    grown = True
    while grown:
        reached = {
            key for key, entries in shared.items() if set(iterate_references(entries)) & clashing
        }
        grown = not reached <= clashing
        clashing |= reached
    return clashing


def iterate_references(node: Any) -> Iterator[ComponentKey]:
    """Yield the components that a node of a document refers to (`$ref`)."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith(_COMPONENT_PREFIX):
            section, _, name = target.removeprefix(_COMPONENT_PREFIX).partition("/")
            yield section, name
        for value in node.values():
            yield from iterate_references(value)
    elif isinstance(node, list):
        for value in node:
            yield from iterate_references(value)


def _rename_components(
    service: str, document: OpenApiDocument, clashing: set[ComponentKey]
) -> OpenApiDocument:
    names = {key: f"{service.capitalize()}{key[1]}" for key in clashing}
    document = _rename_references(deepcopy(document), names)
    for section, entries in document.get("components", {}).items():
        document["components"][section] = {
            names.get((section, name), name): entry for name, entry in entries.items()
        }
    return document


def _rename_references(node: Any, names: Mapping[ComponentKey, str]) -> Any:
    if isinstance(node, list):
        return [_rename_references(value, names) for value in node]
    if not isinstance(node, dict):
        return node
    redirected = {key: _rename_references(value, names) for key, value in node.items()}
    for section, name in iterate_references({"$ref": node.get("$ref")}):
        if (section, name) in names:
            redirected["$ref"] = f"{_COMPONENT_PREFIX}{section}/{names[section, name]}"
    return redirected


SUPER_ADMIN_SCOPE = "super_admin"
_USER_SCHEME = "user"
_SECURITY_BY_KIND: dict[PrincipalKind, list[dict[str, list[str]]]] = {
    PrincipalKind.APPLICATION: [{"bearer": []}, {"accessToken": []}],
    PrincipalKind.DEVICE: [{"deviceKey": []}],
    PrincipalKind.USER: [{_USER_SCHEME: []}],
}
_FUNCTION_SCOPE_TEXT = "Granted by a role, or to super-admins; not requested at login"

SECURITY_SCHEMES: dict[str, Any] = {
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
    _USER_SCHEME: {
        "type": "oauth2",
        "description": "Users: a token of `/oauth2/token`, as `Authorization: Bearer`",
        "flows": {
            "password": {
                "tokenUrl": "/oauth2/token",
                "refreshUrl": "/oauth2/token",
                "scopes": {
                    **{function.value: _FUNCTION_SCOPE_TEXT for function in Function},
                    SUPER_ADMIN_SCOPE: "Only super-admins",
                },
            }
        },
    },
}


def convert_caller_to_security(
    route: Route, operation: dict[str, Any]
) -> list[dict[str, list[str]]]:
    """Remove `x-thingway-caller` from an operation; return the equivalent security requirements.

    A caller must satisfy one of the requirements; an empty list means a public operation.
    """
    caller = operation.pop(CALLER_EXTENSION, {})
    if route.credential is CredentialType.NONE:
        return []
    if caller.get("superAdmin"):
        return [{_USER_SCHEME: [SUPER_ADMIN_SCOPE]}]
    if functions := caller.get("functions"):
        return [{_USER_SCHEME: [function]} for function in functions]
    return [requirement for kind in sorted(route.kinds) for requirement in _SECURITY_BY_KIND[kind]]


_DESCRIPTION_BY_STATUS = {
    "401": "The credential is missing, invalid or expired",
    "413": "The body is larger than the limit",
    "429": "Too many requests; retry after the seconds in `Retry-After`",
    "502": "The service closed the connection",
    "503": "Overloaded or starting; retry after the seconds in `Retry-After`",
    "504": "The service did not answer in time",
}
_RETRY_AFTER_STATUSES = {"429", "503"}
_OPEN_API, _CONSOLE = "Gateway", "GatewayConsole"
"""Prefixes of the gateway's component names, for the envelopes of the open and management API."""


def _build_error_response(envelope: str, status: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{envelope}Error"}
    response: dict[str, Any] = {
        "description": _DESCRIPTION_BY_STATUS[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in _RETRY_AFTER_STATUSES:
        response["headers"] = {
            "Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}
        }
    return response


def _build_error_schema(request_id: str, *names: str, **more: Any) -> dict[str, Any]:
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


GATEWAY_COMPONENTS: dict[str, Any] = {
    "schemas": {
        f"{_OPEN_API}Error": _build_error_schema("requestId", "errCode", "errMsg"),
        f"{_CONSOLE}Error": _build_error_schema(
            "request_id", "error_code", "error_message", data={}
        ),
    },
    "responses": {
        f"{envelope}{status}": _build_error_response(envelope, status)
        for envelope in (_OPEN_API, _CONSOLE)
        for status in _DESCRIPTION_BY_STATUS
    },
}
"""The components that `gateway_error_responses` refers to."""


def gateway_error_responses(
    path: str, credential: CredentialType, *, has_body: bool
) -> dict[str, Any]:
    """Return the responses of the gateway for an operation at `path`, by status."""
    envelope = _OPEN_API if find_api(path) is ApiPart.DEVICE else _CONSOLE
    statuses = set(_DESCRIPTION_BY_STATUS)
    if credential is CredentialType.NONE:
        statuses.discard("401")
    if not has_body:
        statuses.discard("413")
    return {
        status: {"$ref": f"#/components/responses/{envelope}{status}"}
        for status in sorted(statuses)
    }


HTTP_METHODS = frozenset({"get", "put", "post", "delete", "options", "head", "patch", "trace"})


def merge_documents(
    documents: Mapping[str, OpenApiDocument], routes: tuple[Route, ...]
) -> OpenApiDocument:
    """Return one document of the public paths, merged from documents by service."""
    merged: OpenApiDocument = {
        "openapi": "3.1.0",
        "info": {"title": "Thingway", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {},
        "components": deepcopy(GATEWAY_COMPONENTS) | {"securitySchemes": SECURITY_SCHEMES},
    }
    for service, document in rename_clashing_components(documents).items():
        for section, entries in document.get("components", {}).items():
            if section != "securitySchemes":
                merged["components"].setdefault(section, {}).update(entries)
        for path, item in document.get("paths", {}).items():
            route = _find_route(routes, service, path)
            if route is not None:
                merged["paths"][path] = _add_security_and_responses(service, route, path, item)
    merged["tags"] = [{"name": name} for name in sorted(_collect_tags(merged))]
    return merged


def _collect_tags(document: OpenApiDocument) -> set[str]:
    return {
        tag
        for item in document["paths"].values()
        for operation in _iterate_operations(item)
        for tag in operation["tags"]
    }


def _find_route(routes: tuple[Route, ...], service: str, path: str) -> Route | None:
    for route in routes:
        if route.upstream == service and not route.rewrite and route.matches(path.encode()):
            return route
    return None


def _add_security_and_responses(
    service: str, route: Route, path: str, item: OpenApiDocument
) -> OpenApiDocument:
    for operation in _iterate_operations(item):
        tags = operation.get("tags") or [service.capitalize()]
        operation["tags"] = [f"{find_api(path).value}: {tag}" for tag in tags]
        operation["security"] = convert_caller_to_security(route, operation)
        responses = operation.setdefault("responses", {})
        for status, response in gateway_error_responses(
            path, route.credential, has_body="requestBody" in operation
        ).items():
            responses.setdefault(status, response)
    return item


def _iterate_operations(item: OpenApiDocument) -> Iterator[OpenApiDocument]:
    for method, operation in item.items():
        if method in HTTP_METHODS:
            yield operation
