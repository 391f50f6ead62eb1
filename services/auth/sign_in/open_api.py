"""`POST /oauth/token`: tokens of applications."""

from dataclasses import dataclass

from litestar import post
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.openapi.spec import Operation

from libs.common.envelope import Success
from libs.common.http import OPEN_API_ERROR_RESPONSES, HttpRequest, wrap_success
from libs.common.http.request import get_address, get_request_id
from services.auth.sign_in.token_requests import (
    RequestOrigin,
    TokenDetails,
    build_grant_schema,
    build_request_body,
    parse_application_grant,
)
from services.auth.sign_in.tokens import ApplicationTokenService


@dataclass
class TokenOperation(Operation):
    """The operation with its body, which the handler parses itself."""

    def __post_init__(self) -> None:
        self.request_body = build_request_body(
            build_grant_schema(
                "ClientCredentialsGrant",
                "client_credentials",
                {
                    "client_id": "The application's client id",
                    "client_secret": "The application's secret",
                },
            ),
            build_grant_schema(
                "RefreshGrant",
                "refresh_token",
                {"refresh_token": "The latest refresh token, which can be used once"},
                client_id="Optional; must be the client id of the token's application",
                client_secret="Optional; must be the secret of that application",  # noqa: S106 - a text
            ),
            grant_type="client_credentials",
            client_id="…",
            client_secret="…",  # noqa: S106 - an example
        )


@post(
    "/oauth/token",
    status_code=200,
    operation_class=TokenOperation,
    responses={
        status: OPEN_API_ERROR_RESPONSES[status]
        for status in (400, 401, 403, 405, 413, 415, 429, 500, 503)
    },
    response_headers=[ResponseHeader(name="Cache-Control", value="no-store")],
    summary="Get or refresh an access token",
    tags=["Authentication"],
    security=[{}],
    waits=True,
)
async def issue_token(
    request: HttpRequest, tokens: NamedDependency[ApplicationTokenService]
) -> Success[TokenDetails]:
    """Exchange an application's credentials, or a refresh token, for a pair of tokens."""
    content_type = request.headers.get("content-type")
    token_request = parse_application_grant(content_type, await request.body())
    details = await tokens.issue_for_grant(
        token_request, RequestOrigin(get_address(request), get_request_id(request))
    )
    return wrap_success(request, details)
