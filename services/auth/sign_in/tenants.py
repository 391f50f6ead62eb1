"""Which tenant a request without a token is about."""

from libs.common.errors import InvalidInput
from libs.common.http.request import Connection
from services.auth.tenants.service import TENANT

HEADER = "TENANT_ID"


def named_tenant(connection: Connection) -> str | None:
    """The tenant that the header names; raise `InvalidInput` for a name that no tenant has."""
    named = connection.headers.get(HEADER)
    if named and not TENANT.fullmatch(named):
        raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field=HEADER)
    return named or None
