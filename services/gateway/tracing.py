"""A span per request, when spans are exported; the client's trace goes on otherwise too."""

from collections.abc import Iterator
from contextlib import contextmanager

from multidict import CIMultiDict
from opentelemetry import trace

from libs.common.telemetry import extract_context, inject_context, tracer

_TRACEPARENT = "traceparent"


class Tracing:
    """Makes the spans; off unless an exporter was set up."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    @contextmanager
    def span(self, method: str, route: str, traceparent: bytes | None) -> Iterator[None]:
        """Run a request inside a server span that continues the client's trace."""
        parent = {_TRACEPARENT: traceparent.decode("latin-1")} if traceparent else None
        with tracer().start_as_current_span(
            f"{method} {route}", context=extract_context(parent), kind=trace.SpanKind.SERVER
        ):
            yield


def trace_headers(headers: CIMultiDict[str]) -> None:
    """Name the current span to the service; leave what the client sent when there is none."""
    if trace.get_current_span() is not trace.INVALID_SPAN:
        headers.pop(_TRACEPARENT, None)
        inject_context(headers)
