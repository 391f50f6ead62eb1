"""A span per request when spans are exported; else the client's trace context passes as it is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from opentelemetry import trace

from libs.common.telemetry import extract_context, inject_context, tracer
from services.gateway.upstream.connection import Field

_FIELDS = frozenset({b"traceparent", b"tracestate"})


class Tracing:
    """Makes the spans; `on` when they are exported."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    @contextmanager
    def span(self, method: str, route: str, fields: Iterable[Field]) -> Iterator[None]:
        """Run a request inside a server span that continues the client's trace."""
        context = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in fields
            if name in _FIELDS
        }
        with tracer().start_as_current_span(
            f"{method} {route}", context=extract_context(context), kind=trace.SpanKind.SERVER
        ):
            yield


def name_span(fields: list[Field]) -> list[Field]:
    """Name the current span to the service, instead of what the client sent."""
    context: dict[str, str] = {}
    inject_context(context)
    kept = [field for field in fields if field[0] not in _FIELDS]
    return kept + [(name.encode(), value.encode()) for name, value in context.items()]
