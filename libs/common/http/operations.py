"""Operations: their envelope, and which of them a module has."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_origin

import msgspec
from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.types import AnyCallable, ASGIApp

from libs.common.envelope import Answer, Success
from libs.common.http.request import HttpRequest, request_id_of


class Operation(HTTPRouteHandler):
    """Puts the success envelope around what a function gives; without `data` when that is None.

    A function that gives the envelope or a `Response` itself has its own. This is an operation of
    the open API.
    """

    envelope: ClassVar[type[Any]] = Success

    def __call__(self, fn: AnyCallable) -> Self:
        """Let Litestar and the document take the function for one that gives the envelope."""
        given = fn.__annotations__["return"]
        kind = get_origin(given) or given
        if not (isinstance(kind, type) and issubclass(kind, self.envelope | Response)):
            fn.__annotations__["return"] = self.envelope[given]
        self.summary = self.summary or fn.__name__.replace("_", " ").capitalize()
        super().__call__(fn)
        return self

    async def to_response(self, app: Litestar, data: Any, request: HttpRequest) -> ASGIApp:
        """Put it around `data`."""
        if not isinstance(data, self.envelope | Response):
            given = msgspec.UNSET if data is None else data
            data = self.envelope(data=given, request_id=request_id_of(request))
        return await super().to_response(app, data, request)


class ConsoleOperation(Operation):
    """An operation of the management API."""

    envelope = Answer


def operations_of(module: Mapping[str, Any]) -> list[HTTPRouteHandler]:
    """The operations that stand in a module, of which `globals()` are given, in their order."""
    return [
        one
        for one in module.values()
        if isinstance(one, HTTPRouteHandler) and one.fn.__module__ == module["__name__"]
    ]
