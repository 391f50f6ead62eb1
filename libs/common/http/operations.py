"""Which operations a module has."""

from collections.abc import Mapping
from typing import Any

from litestar.handlers import HTTPRouteHandler


def operations_of(module: Mapping[str, Any]) -> list[HTTPRouteHandler]:
    """The operations that stand in a module, of which `globals()` are given, in their order."""
    return [
        one
        for one in module.values()
        if isinstance(one, HTTPRouteHandler) and one.fn.__module__ == module["__name__"]
    ]
