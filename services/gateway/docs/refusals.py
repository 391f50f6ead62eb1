"""The refusals that come from the gateway, as every operation documents them."""

from typing import Any

from services.gateway.docs.apis import Api, api_of
from services.gateway.routes import Credential

_SENTENCES = {
    "401": "No credential, or one that is not valid",
    "413": "The body is larger than the limit",
    "429": "Too many requests; `Retry-After` says when to come back",
    "502": "The service broke off",
    "503": "Overloaded or starting; `Retry-After` says when to come back",
    "504": "The service did not answer in time",
}
_WITH_RETRY = {"429", "503"}
_OPEN_API, _CONSOLE = "Gateway", "GatewayConsole"
"""How the names of components begin, by the envelope that they wear."""


def _response(envelope: str, status: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{envelope}Refusal"}
    response: dict[str, Any] = {
        "description": _SENTENCES[status],
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
        "description": "A refusal of the gateway",
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
        f"{_OPEN_API}Refusal": _schema("requestId", "errCode", "errMsg"),
        f"{_CONSOLE}Refusal": _schema("request_id", "error_code", "error_message", data={}),
    },
    "responses": {
        f"{envelope}{status}": _response(envelope, status)
        for envelope in (_OPEN_API, _CONSOLE)
        for status in _SENTENCES
    },
}
"""The components that `documented` refers to."""


def documented(path: str, credential: Credential, *, has_body: bool) -> dict[str, Any]:
    """The responses of the gateway for an operation at `path`, by status."""
    envelope = _OPEN_API if api_of(path) is Api.DEVICE else _CONSOLE
    statuses = set(_SENTENCES)
    if credential is Credential.NONE:
        statuses.discard("401")
    if not has_body:
        statuses.discard("413")
    return {
        status: {"$ref": f"#/components/responses/{envelope}{status}"}
        for status in sorted(statuses)
    }
