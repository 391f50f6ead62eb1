"""A span per request when spans are exported; else the client's trace context passes as it is."""

from collections.abc import Iterator
from contextlib import contextmanager

from multidict import CIMultiDict
from opentelemetry import trace

from libs.common.telemetry import extract_context, inject_context, tracer
from services.gateway.proxy.headers import Fields


class Tracing:
    """Makes the spans; `on` when they are exported."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    @contextmanager
    def span(self, method: str, route: str, fields: Fields) -> Iterator[None]:
        """Run a request inside a server span that continues the client's trace."""
        context = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in fields
            if name in {b"traceparent", b"tracestate"}
        }
        with tracer().start_as_current_span(
            f"{method} {route}", context=extract_context(context), kind=trace.SpanKind.SERVER
        ):
            yield


def name_span(headers: CIMultiDict[str]) -> None:
    """Name the current span to the service; leave what the client sent when there is none."""
    if trace.get_current_span().get_span_context().is_valid:
        headers.pop("traceparent", None)
        inject_context(headers)
