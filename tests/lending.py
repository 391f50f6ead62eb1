"""Applications that tests share one after the other: building one takes longer than most tests."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any
from unittest.mock import patch

from litestar import Litestar, Router
from litestar.types import ControllerRouterHandler

from libs.common.http import Service, create_app, operations

WIRINGS = tuple(f"services.{name}.app" for name in ("auth", "device", "management", "workflow"))


@dataclass
class Dependency:
    """What a router was given (`provide`); of an application that is used again the newest."""

    value: object

    def provider(self) -> Callable[[], Any]:
        """A plain function, of which Litestar copies no closure."""

        def get_dependency() -> Any:
            return self.value

        return get_dependency


@dataclass
class Lent:
    """An application that nobody uses at the moment."""

    service: Service
    app: Litestar
    dependencies: Sequence[Dependency]


_free: dict[Hashable, list[Lent]] = defaultdict(list)


@contextmanager
def lent(build: Callable[[], Litestar]) -> Iterator[Litestar]:
    """What a service's `build_app` builds, until the end of the block."""
    with ExitStack() as stack:
        dependencies: list[Dependency] = []

        def provider(value: object) -> Callable[[], Any]:
            dependencies.append(Dependency(value))
            return dependencies[-1].provider()

        with ExitStack() as patches:
            patches.enter_context(patch.object(operations, "_provider", provider))
            for module in WIRINGS:
                lend = lambda service: stack.enter_context(_lent_for(service, dependencies))  # noqa: E731
                patches.enter_context(patch(f"{module}.create_app", lend))
            app = build()
        yield app


@contextmanager
def _lent_for(service: Service, dependencies: Sequence[Dependency]) -> Iterator[Litestar]:
    """The application of a service, until the end of the block.

    It may be an earlier one, which gets the collaborators of this one.
    """
    free = _free[service.name, tuple(map(_shape, service.routes)), len(dependencies)]
    lent = free.pop() if free else Lent(service, create_app(service), dependencies)
    vars(lent.service.verifier).update(vars(service.verifier))
    for field in fields(Service):
        if field.name != "verifier":
            object.__setattr__(lent.service, field.name, getattr(service, field.name))
    for old, new in zip(lent.dependencies, dependencies, strict=True):
        old.value = new.value
    try:
        yield lent.app
    finally:
        free.append(lent)


def _shape(route: ControllerRouterHandler) -> Hashable:
    """What is the same of routers that are made again: their paths and handlers."""
    if not isinstance(route, Router):
        return id(route)
    methods = route.route_handler_method_map
    return tuple(
        (path, name, id(one.fn)) for path in methods for name, one in methods[path].items()
    )
