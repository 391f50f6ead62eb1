"""Operations: their response envelope, and the list of a module's operations."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin

import msgspec
from litestar import Litestar, Response, Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.routes import HTTPRoute
from litestar.serialization import encode_json
from litestar.types import AnyCallable, ASGIApp
from litestar.types.internal_types import PathParameterDefinition

from libs.common.envelope import Answer, Success
from libs.common.http.request import HttpRequest, get_request_id
from libs.common.http.streaming import (
    StreamedAnswer,
    chain_rows,
    encode_parts,
    join_pieces,
    to_streamed_answer,
)


class Operation(HTTPRouteHandler):
    """Wraps the result of a handler in the success envelope of the open API.

    Without a result, the envelope has no `data`. A handler may return the envelope or a `Response`
    itself.
    """

    envelope: ClassVar[type[Any]] = Success

    def __call__(self, fn: AnyCallable) -> Self:
        """Declare the envelope as the return type, for Litestar and the document."""
        return_type = fn.__annotations__["return"]
        kind: Any = get_origin(return_type) or return_type
        if kind is StreamedAnswer:
            (return_type,) = get_args(return_type)
            fn.__annotations__["return"] = return_type
            kind = get_origin(return_type) or return_type
        if not (isinstance(kind, type) and issubclass(kind, self.envelope | Response)):
            fn.__annotations__["return"] = self.envelope[return_type]
        self.summary = self.summary or fn.__name__.replace("_", " ").capitalize()
        super().__call__(fn)
        return self

    def create_kwargs_model(self, path_parameters: dict[str, PathParameterDefinition]) -> Any:
        """Return the model of the parameters, which resolves dependencies one by one.

        Litestar would resolve independent ones in concurrent tasks, which take more than a third of
        its time. No dependency waits for anything.
        """
        model = super().create_kwargs_model(path_parameters)
        model.dependency_batches = [{each} for batch in model.dependency_batches for each in batch]
        return model

    async def to_response(self, app: Litestar, data: Any, request: HttpRequest) -> ASGIApp:
        """Return the response with the envelope around `data`; a long one is streamed."""
        if not isinstance(data, self.envelope | Response):
            request_id = get_request_id(request)
            streamed = to_streamed_answer(data)
            result = msgspec.UNSET if data is None else data
            data = self.envelope(
                data=result if streamed is None else streamed.around, request_id=request_id
            )
            if streamed is not None:
                data = await _response(streamed, encode_json(data))
        return await super().to_response(app, data, request)


async def _response(streamed: StreamedAnswer[Any], envelope: bytes) -> Response[Any]:
    """Return a complete response if it is short, else a stream."""
    pieces = join_pieces(encode_parts(streamed, envelope))
    first = await anext(pieces)
    second = await anext(pieces, None)
    if second is None:
        return Response(first, media_type="application/json")
    return Stream(chain_rows([first, second], pieces), media_type="application/json")


class ConsoleOperation(Operation):
    """An operation of the management API."""

    envelope = Answer


def list_operations(module: Mapping[str, Any]) -> list[HTTPRouteHandler]:
    """Return the operations that a module (its `globals()`) has defined so far, in order."""
    return [
        handler
        for handler in module.values()
        if isinstance(handler, HTTPRouteHandler) and handler.fn.__module__ == module["__name__"]
    ]


def route_operations(module: Mapping[str, Any], path: str, **options: Any) -> Router:
    """Return a router of the operations of a module (its `globals()`) that are in no router yet."""
    routers = [router for router in module.values() if isinstance(router, Router)]
    routed = {
        handler.fn
        for router in routers
        for route in router.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
    }
    handlers = [operation for operation in list_operations(module) if operation.fn not in routed]
    return Router(path, route_handlers=handlers, **options)


if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def build_dependencies(dependencies: "DataclassInstance") -> dict[str, Provide]:
    """Return the values of a dataclass's fields as the `dependencies` of a router, by name."""
    return {
        field.name: Provide(_provider(getattr(dependencies, field.name)), sync_to_thread=False)
        for field in fields(dependencies)
    }


def _provider(dependency: object) -> Callable[[], Any]:
    # Litestar deep-copies routers. It does not copy the closure of a plain function, but it would
    # copy the object of a bound method or a `partial`.
    def get_dependency() -> Any:
        return dependency

    return get_dependency
