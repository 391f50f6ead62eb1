"""The refusals that come from the gateway, as every operation documents them."""

from typing import Any

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
_SCHEMA = "GatewayRefusal"


def _response(status: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _SENTENCES[status],
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{_SCHEMA}"}}},
    }
    if status in _WITH_RETRY:
        response["headers"] = {
            "Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}
        }
    return response


COMPONENTS: dict[str, Any] = {
    "schemas": {
        _SCHEMA: {
            "type": "object",
            "title": "A refusal of the gateway",
            "required": ["status", "requestId", "errCode", "errMsg"],
            "properties": {
                "status": {"const": "Failed"},
                "requestId": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                "errCode": {"type": "string"},
                "errMsg": {"type": "string"},
                "data": {},
            },
        }
    },
    "responses": {f"Gateway{status}": _response(status) for status in _SENTENCES},
}
"""The components that `documented` refers to."""


def documented(credential: Credential, *, has_body: bool) -> dict[str, Any]:
    """The responses of the gateway for an operation, by status."""
    statuses = set(_SENTENCES)
    if credential is Credential.NONE:
        statuses.discard("401")
    if not has_body:
        statuses.discard("413")
    return {
        status: {"$ref": f"#/components/responses/Gateway{status}"} for status in sorted(statuses)
    }
