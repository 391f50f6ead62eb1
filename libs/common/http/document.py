"""The OpenAPI document of a service, which says only what is true."""

from typing import Any

from litestar import Litestar, Request
from litestar.openapi.plugins import JsonRenderPlugin

from libs.common.http.guards import Guard, guarded

WHO = "x-thingway-caller"
"""Who may call an operation: `{kind, functions?, superAdmin?}`. The gateway's document says what
such a caller has to show; absent on operations that are open."""


class DocumentPlugin(JsonRenderPlugin):
    """Renders the document; adds who may call, and mends what Litestar says of `int | float`."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the document as JSON."""
        _settle_numbers(openapi_schema)
        _name_callers(openapi_schema, request.app)
        return super().render(request, openapi_schema)


def _name_callers(document: dict[str, Any], app: Litestar) -> None:
    for operation in guarded(app):
        item = document.get("paths", {}).get(operation.path, {})
        if operation.guard is not None and operation.method.lower() in item:
            item[operation.method.lower()][WHO] = _caller(operation.guard)


def _caller(guard: Guard) -> dict[str, Any]:
    caller: dict[str, Any] = {"kind": guard.kind.value}
    if guard.functions:
        caller["functions"] = sorted(guard.functions)
    if guard.super_admin:
        caller["superAdmin"] = True
    return caller


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
