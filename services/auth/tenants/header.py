"""Which tenant a request without a token is about: the header `TENANT_ID`."""

from litestar.openapi.spec import OpenAPIType, Parameter, Schema

from libs.common.errors import InvalidInput
from libs.common.http.request import Connection
from services.auth.accounts.tenants import TENANT, TENANT_RULE

HEADER = "TENANT_ID"


def named_tenant(connection: Connection) -> str | None:
    """The tenant that the header names; raise `InvalidInput` for a name that no tenant has."""
    named = connection.headers.get(HEADER)
    if named and not TENANT.fullmatch(named):
        raise InvalidInput(TENANT_RULE, field=HEADER)
    return named or None


def tenant_parameter() -> Parameter:
    """The header in the documentation."""
    return Parameter(
        name=HEADER,
        param_in="header",
        required=False,
        schema=Schema(type=OpenAPIType.STRING, pattern=r"^[A-Za-z0-9_-]{1,64}$"),
        description="Which tenant; by default the client's, else `default`",
    )
