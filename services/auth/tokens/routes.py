"""`POST /oauth/token`."""

from dataclasses import dataclass
from typing import Any

from litestar import Request, post
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    RequestBody,
    Schema,
)

from libs.common.envelope import Success
from libs.common.http import REFUSALS, ok
from libs.common.http.request import address_of, request_id_of
from services.auth.tokens.form import FORM_TYPES, JSON_TYPE, read_token_request
from services.auth.tokens.schemas import Client, TokenDetails
from services.auth.tokens.service import TokenService


def _text(description: str) -> Schema:
    return Schema(type=OpenAPIType.STRING, pattern=r"\S", description=description)


_GRANT = Schema(
    one_of=[
        Schema(
            type=OpenAPIType.OBJECT,
            title="client_credentials",
            required=["grant_type", "client_id", "client_secret"],
            properties={
                "grant_type": Schema(type=OpenAPIType.STRING, const="client_credentials"),
                "client_id": _text("The application's client id"),
                "client_secret": _text("The application's secret"),
            },
        ),
        Schema(
            type=OpenAPIType.OBJECT,
            title="refresh_token",
            required=["grant_type", "refresh_token"],
            properties={
                "grant_type": Schema(type=OpenAPIType.STRING, const="refresh_token"),
                "refresh_token": _text("The latest refresh token; it is used up"),
                "client_id": _text("When it is sent, it must be the token's application"),
            },
        ),
    ]
)


@dataclass
class TokenOperation(Operation):
    """The operation with its body: the handler reads it itself, so Litestar cannot tell."""

    def __post_init__(self) -> None:
        example = Example(
            value={"grant_type": "client_credentials", "client_id": "…", "client_secret": "…"}
        )
        media = OpenAPIMediaType(schema=_GRANT, examples={"client_credentials": example})
        self.request_body = RequestBody(
            required=True, content={FORM_TYPES[0]: media, JSON_TYPE: media}
        )


@post(
    "/oauth/token",
    status_code=200,
    operation_class=TokenOperation,
    responses={
        status: REFUSALS[status] for status in (400, 401, 403, 405, 413, 415, 429, 500, 503)
    },
    response_headers=[ResponseHeader(name="Cache-Control", value="no-store")],
    summary="Get or refresh an access token",
    tags=["Authentication"],
    security=[{}],
)
async def issue_token(
    request: Request[Any, Any, Any], tokens: NamedDependency[TokenService]
) -> Success[TokenDetails]:
    """Exchange an application's credentials, or a refresh token, for a pair of tokens."""
    content_type = request.headers.get("content-type")
    wanted = read_token_request(content_type, await request.body())
    details = await tokens.grant(wanted, Client(address_of(request), request_id_of(request)))
    return ok(request, details)
