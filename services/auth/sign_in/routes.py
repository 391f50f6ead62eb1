"""`POST /oauth2/token`."""

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
    Parameter,
    RequestBody,
    Schema,
)

from libs.common.http.console import CONSOLE_REFUSALS
from libs.common.http.request import CLIENT_ADDRESS_HEADER, request_id_of
from services.auth.sign_in.form import read_grant
from services.auth.sign_in.schemas import ConsoleTokenAnswer, Origin
from services.auth.sign_in.service import SignIn
from services.auth.sign_in.tenants import HEADER, named_tenant
from services.auth.tokens.form import FORM_TYPES, JSON_TYPE


def _text(description: str) -> Schema:
    return Schema(type=OpenAPIType.STRING, pattern=r"\S", description=description)


def _grant(title: str, **fields: str) -> Schema:
    texts = {
        **fields,
        "client_id": "The console's client id",
        "client_secret": "The console's client secret",
    }
    return Schema(
        type=OpenAPIType.OBJECT,
        title=title,
        required=["grant_type", *texts],
        properties={
            "grant_type": Schema(type=OpenAPIType.STRING, const=title),
            **{name: _text(description) for name, description in texts.items()},
        },
    )


_GRANT = Schema(
    one_of=[
        _grant("password", username="The e-mail address", password="The password"),  # noqa: S106
        _grant("refresh_token", refresh_token="The latest refresh token; it is used up"),  # noqa: S106
    ]
)


@dataclass
class SignInOperation(Operation):
    """The operation with its body and header: the handler reads them itself."""

    def __post_init__(self) -> None:
        example = Example(
            value={
                "grant_type": "password",
                "username": "admin@example.com",
                "password": "…",
                "client_id": "…",
                "client_secret": "…",
            }
        )
        media = OpenAPIMediaType(schema=_GRANT, examples={"password": example})
        self.request_body = RequestBody(
            required=True, content={FORM_TYPES[0]: media, JSON_TYPE: media}
        )
        self.parameters = [tenant_parameter()]


def tenant_parameter() -> Parameter:
    """The header that names a tenant, in the documentation."""
    return Parameter(
        name=HEADER,
        param_in="header",
        required=False,
        schema=Schema(type=OpenAPIType.STRING, pattern=r"^[A-Za-z0-9_-]{1,64}$"),
        description="Which tenant; by default the client's, else `default`",
    )


@post(
    "/oauth2/token",
    status_code=200,
    operation_class=SignInOperation,
    responses={
        status: CONSOLE_REFUSALS[status] for status in (400, 401, 405, 413, 415, 429, 500, 503)
    },
    response_headers=[ResponseHeader(name="Cache-Control", value="no-store")],
    summary="Sign in, or refresh an access token",
    tags=["Authentication and current user"],
    security=[{}],
)
async def sign_in(
    request: Request[Any, Any, Any], sign_in: NamedDependency[SignIn]
) -> ConsoleTokenAnswer:
    """Exchange e-mail address and password, or a refresh token, for a pair of tokens."""
    origin = Origin(
        tenant=named_tenant(request),
        address=request.headers.get(CLIENT_ADDRESS_HEADER, ""),
        request_id=request_id_of(request),
    )
    content_type = request.headers.get("content-type")
    tokens = await sign_in.grant(read_grant(content_type, await request.body()), origin)
    return ConsoleTokenAnswer(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        token_type=tokens.token_type,
        expires_in=tokens.expires_in,
        data=tokens,
        request_id=origin.request_id,
    )
