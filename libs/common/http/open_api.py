"""Operations of the device open API: the refusals they document, the parameters they know."""

from functools import lru_cache, partial

from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter

from libs.common.errors import InvalidInput
from libs.common.http.documented import REFUSALS
from libs.common.http.operations import Operation
from libs.common.http.request import HttpRequest


async def refuse_unknown_parameters(request: HttpRequest) -> None:
    """Raise `InvalidInput` for a query parameter that the operation does not have.

    As for fields of bodies: what would be passed over was meant for something.
    """
    if not request.scope["query_string"]:
        return
    known = _parameters(request.route_handler)
    for name in request.query_params:
        if name not in known:
            there = f"there is {', '.join(known)}" if known else "there are none"
            raise InvalidInput(f"the operation has no such parameter; {there}", field=name[:128])


@lru_cache(maxsize=1024)
def _parameters(handler: BaseRouteHandler) -> tuple[str, ...]:
    """The query parameters of an operation, as they are written."""
    found = []
    for name, field in handler.parsed_fn_signature.parameters.items():
        given = field.kwarg_definition
        if isinstance(given, QueryParameter):
            found.append(given.name or name)
    return tuple(found)


route = partial(
    Operation, responses=REFUSALS, before_request=refuse_unknown_parameters, status_code=200
)
"""An operation of the device open API: what is done is a 200."""
get = partial(route, http_method="GET")
post = partial(route, http_method="POST")
put = partial(route, http_method="PUT")
patch = partial(route, http_method="PATCH")
delete = partial(route, http_method="DELETE")
