"""Operations of the device open API: their documented errors and known parameters."""

from functools import lru_cache, partial

from litestar.handlers import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter

from libs.common.envelope import Failure
from libs.common.errors import InvalidInput
from libs.common.http.operations import Operation
from libs.common.http.request import HttpRequest

ERROR_DESCRIPTION_BY_STATUS = {
    400: "An input is invalid; `errMsg` names the field",
    401: "The token is missing, invalid or expired",
    403: "The caller does not have permission",
    404: "The resource does not exist, or the caller may not see it",
    405: "The path does not support the method",
    409: "The request conflicts with stored data",
    413: "The body is larger than the limit",
    415: "The operation does not accept the content type",
    429: "Too many requests; retry after the seconds in `Retry-After`",
    500: "Internal error; search the log for `requestId`",
    503: "Overloaded or starting; retry after the seconds in `Retry-After`",
    504: "A service did not answer in time; it may still process the request",
}

OPEN_API_ERROR_RESPONSES: dict[int, ResponseSpec] = {
    status: ResponseSpec(data_container=Failure, description=sentence, generate_examples=False)
    for status, sentence in ERROR_DESCRIPTION_BY_STATUS.items()
}


async def reject_unknown_parameters(request: HttpRequest) -> None:
    """Raise `InvalidInput` for an unknown query parameter.

    As with unknown fields of bodies, ignoring it would hide a mistake of the client.
    """
    if not request.scope["query_string"]:
        return
    known_names = _parameters(request.route_handler)
    for name in request.query_params:
        if name not in known_names:
            hint = f"use {', '.join(known_names)}" if known_names else "it has none"
            raise InvalidInput(f"the operation has no such parameter; {hint}", field=name[:128])


@lru_cache(maxsize=1024)
def _parameters(handler: BaseRouteHandler) -> tuple[str, ...]:
    """Return the names of the query parameters of an operation."""
    parameter_names = []
    for name, field in handler.parsed_fn_signature.parameters.items():
        definition = field.kwarg_definition
        if isinstance(definition, QueryParameter):
            parameter_names.append(definition.name or name)
    return tuple(parameter_names)


route = partial(
    Operation,
    responses=OPEN_API_ERROR_RESPONSES,
    before_request=reject_unknown_parameters,
    status_code=200,
)
"""An operation of the device open API, which answers every success with 200."""
get = partial(route, http_method="GET")
post = partial(route, http_method="POST")
put = partial(route, http_method="PUT")
patch = partial(route, http_method="PATCH")
delete = partial(route, http_method="DELETE")
