"""Traces across HTTP and NATS (W3C Trace Context).

A trace begins at an entry point: a request at the gateway, a message at the relay, a report of an
MQTT device at ingest, a due timer. The entry point decides whether the trace is recorded
(docs/decisions/0028). Messages of unrecorded traces have no header, and their receivers create no
spans.
"""

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from libs.common.settings import SettingsInvalid

TRACE_HEADER = "traceparent"
DEFAULT_SAMPLED_SHARE = 0.01
"""Default share of traces that are recorded."""
_SAMPLER, _ARGUMENT = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"

_tracer = trace.get_tracer("thingway")
_propagator = TraceContextTextMapPropagator()
_empty_context = contexts.Context()
_UNTRACED = nullcontext(INVALID_SPAN)
"""The context manager for untraced code in an untraced task, which costs next to nothing."""


class Sampling:
    """The share (0 to 1) of new traces in this process that are recorded."""

    share = 0.0


def read_sampled_share(environ: Mapping[str, str]) -> float:
    """Return the share in the standard variables; raise `SettingsInvalid`."""
    sampler = environ.get(_SAMPLER) or ""
    if sampler.endswith("always_on"):
        return 1.0
    if sampler.endswith("always_off"):
        return 0.0
    if sampler and not sampler.endswith("traceidratio"):
        raise SettingsInvalid(
            f"{_SAMPLER}: {sampler!r} must be always_on, always_off or traceidratio"
        )
    text = environ.get(_ARGUMENT) or (str(DEFAULT_SAMPLED_SHARE) if not sampler else "1")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingsInvalid(f"{_ARGUMENT}: {text!r} is not a number from 0 to 1")
    return share


def set_sampled_share() -> None:
    """Set the share of new traces that are recorded, from the environment."""
    Sampling.share = read_sampled_share(os.environ)


def is_sampled() -> bool:
    """Return whether a trace that begins now is recorded."""
    return random.random() < Sampling.share  # noqa: S311 - not a secret


def span_header(span: Span) -> str:
    """Return the `traceparent` for messages of `span`; empty if it is not recorded."""
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def current_trace() -> str:
    """Return the `traceparent` of this task; empty without a trace."""
    return span_header(trace.get_current_span())


def trace_header(value: str | None = None) -> dict[str, str]:
    """Return the trace header of this task or of `value`; empty without a trace."""
    value = current_trace() if value is None else value
    return {TRACE_HEADER: value} if value else {}


def read_trace(headers: Mapping[str, str] | None) -> str:
    """Return the `traceparent` of a message; empty without one."""
    return headers.get(TRACE_HEADER, "") if headers else ""


def span_context(value: str) -> SpanContext:
    """Return the context of a `traceparent`; an invalid context if it is invalid."""
    if not value:
        return INVALID_SPAN.get_span_context()
    context = _propagator.extract({TRACE_HEADER: value}, _empty_context)
    return trace.get_current_span(context).get_span_context()


def start_span(
    name: str,
    kind: SpanKind,
    traceparent: str = "",
    *,
    start: int | None = None,
    links: Sequence[Link] = (),
    attributes: Attributes = None,
) -> Span:
    """Return a span that continues a `traceparent` or begins a trace; the caller ends it.

    `start` is in ns since 1970.
    """
    parent = span_context(traceparent)
    context = trace.set_span_in_context(trace.NonRecordingSpan(parent), _empty_context)
    return _tracer.start_span(
        name, context if parent.is_valid else _empty_context, kind, attributes, links, start
    )


def begin_trace(name: str, kind: SpanKind, remote: str = "") -> AbstractContextManager[Span]:
    """Begin a trace at an entry point, if it is sampled.

    `remote` is the `traceparent` of an external client. The trace has a link to it, but neither its
    id nor its sampling decision is used.
    """
    if not is_sampled():
        return _run_if_traced(INVALID_SPAN)
    other = span_context(remote)
    return _run_if_traced(start_span(name, kind, links=[Link(other)] if other.is_valid else ()))


def continue_trace(name: str, kind: SpanKind, value: str) -> AbstractContextManager[Span]:
    """Continue the trace of a message; without one, run untraced."""
    return _run_if_traced(start_span(name, kind, value) if value else INVALID_SPAN)


def trace_step(
    name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes = None
) -> AbstractContextManager[Span]:
    """Record a step of this task's trace, if it has one."""
    value = current_trace()
    return (
        _run_if_traced(start_span(name, kind, value, attributes=attributes)) if value else _UNTRACED
    )


def trace_batch(name: str, values: Iterable[str]) -> AbstractContextManager[Span]:
    """Begin a separate trace of a batch, with links to the traces of its items.

    Without a traced item, the batch is not traced.
    """
    links = [
        Link(context) for value in values if value and (context := span_context(value)).is_valid
    ]
    return _run_if_traced(
        start_span(name, SpanKind.CONSUMER, links=links) if links else INVALID_SPAN
    )


def _run_if_traced(span: Span) -> AbstractContextManager[Span]:
    """Return a context manager that runs a block in `span`, or untraced."""
    return _UNTRACED if span is INVALID_SPAN and not current_trace() else _run_in_span(span)


@contextmanager
def _run_in_span(span: Span) -> Iterator[Span]:
    """Run the block in `span`, then end it; record the type of an error, not its text."""
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        mark_failed(span, type(error).__name__)
        raise
    finally:
        contexts.detach(token)
        span.end()


def mark_failed(span: Span, kind: str) -> None:
    """Mark `span` as failed; `kind` is a word, because error messages may contain secrets."""
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", kind)
