"""Applications that tests share one after the other: building one takes longer than most tests."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import Any
from unittest.mock import patch

from litestar import Litestar

from libs.common.http import ServiceDescription, create_app, operations

WIRINGS = tuple(f"services.{name}.app" for name in ("auth", "device", "management", "workflow"))


@dataclass
class Dependency:
    """What a router was given (`build_dependencies`); of a reused application the newest."""

    value: object

    def provider(self) -> Callable[[], Any]:
        """A plain function, of which Litestar copies no closure."""

        def get_dependency() -> Any:
            return self.value

        return get_dependency


@dataclass
class Lent:
    """An application, and what its handlers are given."""

    service: ServiceDescription
    app: Litestar
    dependencies: Sequence[Dependency]

    def renew(self, service: ServiceDescription, dependencies: Sequence[Dependency]) -> Litestar:
        """Give the application the collaborators of a later build, and return it."""
        vars(self.service.verifier).update(vars(service.verifier))
        for field in fields(ServiceDescription):
            if field.name != "verifier":
                object.__setattr__(self.service, field.name, getattr(service, field.name))
        for old, new in zip(self.dependencies, dependencies, strict=True):
            old.value = new.value
        return self.app


_free: dict[Hashable, list[Lent]] = defaultdict(list)


@contextmanager
def lent(build: Callable[[], Litestar]) -> Iterator[Litestar]:
    """What a service's `build_app` builds, until the end of the block.

    It may be an earlier one that was built in the same place of the tests.
    """
    free = _free[build.func if isinstance(build, partial) else build.__code__]
    found = free.pop() if free else None
    dependencies: list[Dependency] = []

    def provider(value: object) -> Callable[[], Any]:
        dependencies.append(Dependency(value))
        return dependencies[-1].provider()

    def create(service: ServiceDescription) -> Litestar:
        nonlocal found
        if found is None:
            found = Lent(service, create_app(service), dependencies)
        return found.renew(service, dependencies)

    with ExitStack() as patches:
        patches.enter_context(patch.object(operations, "_provider", provider))
        for module in WIRINGS:
            patches.enter_context(patch(f"{module}.create_app", create))
        if found is not None:  # routers are thrown away: they need no handlers of their own
            patches.enter_context(patch("litestar.router.deepcopy", copy))
        app = build()
    try:
        yield app
    finally:
        if found is not None:
            free.append(found)
