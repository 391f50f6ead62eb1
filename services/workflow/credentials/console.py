"""`/credentials`: mail servers, and logins of external clients to flows."""

from dataclasses import dataclass
from typing import Annotated

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from libs.common.errors import InvalidInput
from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import (
    NO_STORE_HEADERS,
    Page,
    PageRequest,
    distinct_ids,
    get,
    post,
    put,
)
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity.functions import Function
from services.workflow.credentials.service import (
    CreateCredentials,
    CredentialResponse,
    DeleteCredentials,
    TenantCredentials,
    UpdateCredentials,
)
from services.workflow.credentials.store import CredentialsType

READERS = allow_holders(Function.CREDENTIALS_VIEW, Function.CREDENTIALS_EDIT)
WRITERS = allow_holders(Function.CREDENTIALS_EDIT)

Credentials = NamedDependency[TenantCredentials]
TypeFilter = Annotated[str | None, QueryParameter(name="credentials_type", max_length=32)]
TypeFilterInCamelCase = Annotated[str | None, QueryParameter(name="credentialsType", max_length=32)]
WithSecret = Annotated[bool | None, QueryParameter(name="auto_generate_password")]
WithSecretInCamelCase = Annotated[bool | None, QueryParameter(name="autoGeneratePassword")]
PageSize = Annotated[int | None, QueryParameter(ge=1)]
PageNumber = Annotated[int | None, QueryParameter(ge=1, le=1_000_000_000)]


@get("/default/{credentials_type:str}", guards=[READERS])
async def get_default_credentials(
    principal: RequestPrincipal,
    credentials: Credentials,
    credentials_type: FromPath[str],
    with_secret: WithSecret = None,
    also_with_secret: WithSecretInCamelCase = None,
) -> CredentialResponse:
    """Get the default `SMTP`, `MQTT` or `HTTP` credential; create it if missing.

    With `auto_generate_password`, a new credential gets a secret. Without a secret, nobody can log
    in with it.
    """
    needs_secret = bool(with_secret or also_with_secret)
    return await credentials.get_default(
        principal, _parse_type(credentials_type), with_secret=needs_secret
    )


@get(guards=[READERS])
async def list_credentials(
    principal: RequestPrincipal,
    credentials: Credentials,
    kind: TypeFilter = None,
    also_kind: TypeFilterInCamelCase = None,
    page_size: PageSize = None,
    page_number: PageNumber = None,
) -> Page[CredentialResponse]:
    """List credentials of the tenant, of one type or of all, newest first."""
    text = kind or also_kind
    request = PageRequest(page_size=page_size, page_number=page_number or 1)
    return await credentials.search(principal, None if not text else _parse_type(text), request)


@get("/{credential_id:str}", guards=[READERS])
async def get_credentials(
    principal: RequestPrincipal, credentials: Credentials, credential_id: PathId
) -> CredentialResponse:
    """Get a credential with its secret."""
    return await credentials.get(principal, credential_id)


@post(
    guards=[WRITERS],
    example={
        "credentials_type": "HTTP",
        "access_key": "gate@default",
        "access_secret": "example-secret",
    },
)
async def create_credentials(
    principal: RequestPrincipal, credentials: Credentials, data: JSONBody[CreateCredentials]
) -> None:
    """Add a credential. MQTT and HTTP access keys have the form `{name}@{tenant}`."""
    await credentials.create(principal, data)


@put("/{credential_id:str}", guards=[WRITERS])
async def update_credentials(
    principal: RequestPrincipal,
    credentials: Credentials,
    credential_id: PathId,
    data: JSONBody[UpdateCredentials],
) -> None:
    """Set description, secret and additional data. Absent fields become empty."""
    await credentials.update(principal, credential_id, data)


@post("/delete", guards=[WRITERS], example={"ids": []})
async def delete_credentials(
    principal: RequestPrincipal, credentials: Credentials, data: JSONBody[DeleteCredentials]
) -> None:
    """Delete credentials. Unknown ids are ignored."""
    await credentials.delete(principal, distinct_ids(data.ids))


def _parse_type(text: str) -> CredentialsType:
    try:
        return CredentialsType(text.upper())
    except ValueError as error:
        types = ", ".join(CredentialsType)
        raise InvalidInput(f"must be one of {types}", field="credentials_type") from error


@dataclass(frozen=True)
class CredentialHandlerDependencies:
    """Dependencies of the operations on credentials."""

    credentials: TenantCredentials


def credential_router(handlers: CredentialHandlerDependencies) -> Router:
    """Return the router of the package."""
    return route_operations(
        globals(),
        "/credentials",
        response_headers=NO_STORE_HEADERS,
        dependencies=build_dependencies(handlers),
        tags=["Credentials"],
    )
