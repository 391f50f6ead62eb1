"""`POST /oauth2/token`: users log in at the console and stay logged in."""

from dataclasses import dataclass

from litestar import post
from litestar.di import NamedDependency
from litestar.openapi.spec import Operation

from libs.common.http import HttpRequest
from libs.common.http.console import CONSOLE_ERROR_RESPONSES, NO_STORE_HEADERS
from libs.common.http.request import get_address, get_request_id
from libs.common.identity import OWN_CONSOLE_CLIENT_ID
from services.auth.sign_in.token_requests import (
    ConsoleTokenAnswer,
    RequestOrigin,
    build_grant_schema,
    build_request_body,
    parse_user_grant,
)
from services.auth.sign_in.tokens import UserTokenService
from services.auth.tenants.console import build_tenant_parameter, read_tenant_header

_DESCRIPTION_BY_CLIENT_FIELD = {
    "client_id": f"The console's client id; the built-in console has `{OWN_CONSOLE_CLIENT_ID}`",
    "client_secret": "The console's client secret",
}


@dataclass
class SignInOperation(Operation):
    """The operation with body and header, which the handler parses itself."""

    def __post_init__(self) -> None:
        self.request_body = build_request_body(
            build_grant_schema(
                "PasswordGrant",
                "password",
                {
                    "username": "The email address",
                    "password": "The password",
                    **_DESCRIPTION_BY_CLIENT_FIELD,
                },
            ),
            build_grant_schema(
                "UserRefreshGrant",
                "refresh_token",
                {
                    "refresh_token": "The latest refresh token, which can be used once",
                    **_DESCRIPTION_BY_CLIENT_FIELD,
                },
            ),
            grant_type="password",
            username="admin@example.com",
            password="…",  # noqa: S106 - an example
            client_id="…",
            client_secret="…",  # noqa: S106 - an example
        )
        self.parameters = [build_tenant_parameter()]


@post(
    "/oauth2/token",
    status_code=200,
    operation_class=SignInOperation,
    responses={
        status: CONSOLE_ERROR_RESPONSES[status]
        for status in (400, 401, 405, 413, 415, 429, 500, 503)
    },
    response_headers=NO_STORE_HEADERS,
    summary="Sign in, or refresh an access token",
    tags=["Authentication and current user"],
    security=[{}],
    waits=True,
)
async def sign_in(
    request: HttpRequest, sign_in: NamedDependency[UserTokenService]
) -> ConsoleTokenAnswer:
    """Exchange email address and password, or a refresh token, for a pair of tokens."""
    origin = RequestOrigin(
        get_address(request),
        get_request_id(request),
        read_tenant_header(request),
        request.headers.get("user-agent", ""),
    )
    content_type = request.headers.get("content-type")
    tokens = await sign_in.issue_for_grant(
        parse_user_grant(content_type, await request.body()), origin
    )
    return ConsoleTokenAnswer(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        token_type=tokens.token_type,
        expires_in=tokens.expires_in,
        data=tokens,
        request_id=origin.request_id,
    )
