"""The trace context across HTTP and NATS (W3C Trace Context)."""

from collections.abc import Mapping, MutableMapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def tracer() -> trace.Tracer:
    """The tracer of this process; a no-op unless an OTLP endpoint is set."""
    return trace.get_tracer("thingway")


def inject_context(headers: MutableMapping[str, str]) -> None:
    """Write the current trace context into `headers`; nothing when there is none."""
    _propagator.inject(headers)


def extract_context(headers: Mapping[str, str] | None) -> Context | None:
    """Read a trace context from `headers`, when there is one."""
    if not headers or "traceparent" not in headers:
        return None
    return _propagator.extract(headers)
