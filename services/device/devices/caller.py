"""The application that calls."""

from libs.common.errors import Forbidden
from libs.common.http import principal_of
from libs.common.http.request import Connection
from libs.common.identity import Kind, Principal


def application_of(request: Connection) -> Principal:
    """The calling application; raise `Forbidden` for any other kind of caller."""
    principal = principal_of(request)
    if principal.kind is not Kind.APPLICATION:
        raise Forbidden("this operation is for applications")
    return principal
