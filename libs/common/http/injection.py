"""Injection of dependencies: handlers get the fields of a dataclass by their names."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from litestar.di import Provide

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def provide(dependencies: "DataclassInstance") -> dict[str, Provide]:
    """Return the fields as the `dependencies` of a router, each under its name."""
    return {
        field.name: Provide(_provider(getattr(dependencies, field.name)), sync_to_thread=False)
        for field in fields(dependencies)
    }


def _provider(dependency: object) -> Callable[[], Any]:
    # Litestar deep-copies routers; of a plain function it copies no closure, as it would of a
    # bound method or a `partial`.
    def get_dependency() -> Any:
        return dependency

    return get_dependency
