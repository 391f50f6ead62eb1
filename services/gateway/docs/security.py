"""What a caller has to show, as the merged document says it."""

from typing import Any

from libs.common.http.document import WHO
from libs.common.identity import Kind
from libs.common.identity.functions import Function
from services.gateway.routes import Credential, Route

SUPER_ADMIN = "super_admin"
_USER = "user"
_OF_KIND: dict[Kind, list[dict[str, list[str]]]] = {
    Kind.APPLICATION: [{"bearer": []}, {"accessToken": []}],
    Kind.DEVICE: [{"deviceKey": []}],
    Kind.USER: [{_USER: []}],
}
_HELD = "Held through a role, or by being a super-admin; it is not asked for at log-in"

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
                    **{function.value: _HELD for function in Function},
                    SUPER_ADMIN: "Being a super-admin",
                },
            }
        },
    },
}


def security(route: Route, operation: dict[str, Any]) -> list[dict[str, list[str]]]:
    """What `operation` asks for: any one entry suffices.

    The service's own word on who may call is taken off the operation and turned into scopes.
    """
    caller = operation.pop(WHO, {})
    if route.credential is Credential.NONE:
        return []
    if caller.get("superAdmin"):
        return [{_USER: [SUPER_ADMIN]}]
    if functions := caller.get("functions"):
        return [{_USER: [function]} for function in functions]
    return [requirement for kind in sorted(route.kinds) for requirement in _OF_KIND[kind]]
