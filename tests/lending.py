"""Applications that tests share one after the other: building one takes longer than most tests."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from unittest.mock import patch

from litestar import Litestar

from libs.common.http import Service, create_app

WIRINGS = tuple(f"services.{name}.app" for name in ("auth", "device", "management", "workflow"))
_free: dict[Hashable, list[tuple[Service, Litestar]]] = defaultdict(list)


@contextmanager
def lent(build: Callable[[], Litestar]) -> Iterator[Litestar]:
    """What a service's `build_app` builds, until the end of the block."""
    with ExitStack() as stack:
        with ExitStack() as patches:
            for module in WIRINGS:
                lend = lambda service: stack.enter_context(lent_for(service))  # noqa: E731
                patches.enter_context(patch(f"{module}.create_app", lend))
            app = build()
        yield app


@contextmanager
def lent_for(service: Service) -> Iterator[Litestar]:
    """The application of a service, until the end of the block.

    It may be an earlier one, which gets the collaborators of this one.
    """
    free = _free[service.name, tuple(map(id, service.routes))]
    kept, app = free.pop() if free else (service, create_app(service))
    vars(kept.verifier).update(vars(service.verifier))
    for field in fields(Service):
        if field.name != "verifier":
            object.__setattr__(kept, field.name, getattr(service, field.name))
    try:
        yield app
    finally:
        free.append((kept, app))
