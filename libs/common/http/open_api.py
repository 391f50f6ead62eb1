"""Operations of the device open API: the refusals they document, the parameters they know."""

from functools import lru_cache, partial

from litestar.handlers import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter

from libs.common.envelope import Failure
from libs.common.errors import InvalidInput
from libs.common.http.operations import Operation
from libs.common.http.request import HttpRequest

SENTENCES = {
    400: "An input is wrong; `errMsg` names the field",
    401: "No token, or one that is not valid",
    403: "The caller may not do this",
    404: "There is no such thing, or none that the caller may see",
    405: "The path has no such method",
    409: "The request contradicts what is stored",
    413: "The body is larger than the limit",
    415: "The content type is not one that this operation reads",
    429: "Too many requests; `Retry-After` says when to come back",
    500: "Our fault; `requestId` finds it in the log",
    503: "Overloaded or starting; `Retry-After` says when to come back",
    504: "Something of ours did not answer in time; what was asked for may still happen",
}

REFUSALS: dict[int, ResponseSpec] = {
    status: ResponseSpec(data_container=Failure, description=sentence, generate_examples=False)
    for status, sentence in SENTENCES.items()
}


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
