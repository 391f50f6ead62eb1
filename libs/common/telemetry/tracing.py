"""Traces across HTTP and NATS (W3C Trace Context).

A trace begins at a door, where something reaches the platform: a request at the gateway, a message
at the relay, a report of an MQTT device at ingest, a timer that is due. Whether it is recorded is
decided there, once (docs/decisions/0028). What belongs to no recorded trace carries no header, and
whoever takes it up makes no span.
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

TRACE = "traceparent"
DEFAULT_SHARE = 0.01
"""Of the traces that begin at a door, those that are recorded unless the operator says."""
_SAMPLER, _ARGUMENT = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"

_tracer = trace.get_tracer("thingway")
_propagator = TraceContextTextMapPropagator()
_nothing = contexts.Context()
_UNTRACED = nullcontext(INVALID_SPAN)
"""Around what belongs to no trace, in a task that belongs to none: it costs next to nothing."""


class Doors:
    """How many of the traces that begin in this process are recorded: a share of 0 to 1."""

    share = 0.0


def share_from(environ: Mapping[str, str]) -> float:
    """The share that the standard variables ask for; raise `SettingsInvalid`."""
    sampler = environ.get(_SAMPLER) or ""
    if sampler.endswith("always_on"):
        return 1.0
    if sampler.endswith("always_off"):
        return 0.0
    if sampler and not sampler.endswith("traceidratio"):
        raise SettingsInvalid(f"{_SAMPLER}: {sampler!r} is none of always_on, always_off, ratio")
    text = environ.get(_ARGUMENT) or (str(DEFAULT_SHARE) if not sampler else "1")
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise SettingsInvalid(f"{_ARGUMENT}: {text!r} is not a number from 0 to 1")
    return share


def record_share() -> None:
    """Let doors of this process begin traces, as the environment says."""
    Doors.share = share_from(os.environ)


def is_chosen() -> bool:
    """Whether the trace that begins now is recorded."""
    return random.random() < Doors.share  # noqa: S311 - nothing to guess


def header_of(span: Span) -> str:
    """The `traceparent` of what `span` leads to; empty when it is not recorded."""
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def current_trace() -> str:
    """The `traceparent` of what this task leads to; empty when it belongs to no trace."""
    return header_of(trace.get_current_span())


def trace_header(value: str | None = None) -> dict[str, str]:
    """The header of a message: that of this task, or a given one; none when there is none."""
    value = current_trace() if value is None else value
    return {TRACE: value} if value else {}


def trace_of(headers: Mapping[str, str] | None) -> str:
    """The `traceparent` of a message of ours; empty when it has none."""
    return headers.get(TRACE, "") if headers else ""


def span_context(value: str) -> SpanContext:
    """What a `traceparent` names; an invalid one for what is none."""
    if not value:
        return INVALID_SPAN.get_span_context()
    found = _propagator.extract({TRACE: value}, _nothing)
    return trace.get_current_span(found).get_span_context()


def begin(
    name: str,
    kind: SpanKind,
    value: str = "",
    *,
    start: int | None = None,
    links: Sequence[Link] = (),
    attributes: Attributes = None,
) -> Span:
    """A span that goes on with a `traceparent`, or begins a trace; the caller ends it.

    `start` is in ns since 1970.
    """
    parent = span_context(value)
    context = trace.set_span_in_context(trace.NonRecordingSpan(parent), _nothing)
    return _tracer.start_span(
        name, context if parent.is_valid else _nothing, kind, attributes, links, start
    )


def door(name: str, kind: SpanKind, remote: str = "") -> AbstractContextManager[Span]:
    """Begin a trace around what reached the platform, if it is chosen.

    `remote` is the `traceparent` that a stranger sent: the trace has a link to it, and neither its
    id nor whether it is recorded are the stranger's to say.
    """
    if not is_chosen():
        return _inside(INVALID_SPAN)
    other = span_context(remote)
    return _inside(begin(name, kind, links=[Link(other)] if other.is_valid else ()))


def continued(
    name: str, kind: SpanKind, value: str, attributes: Attributes = None
) -> AbstractContextManager[Span]:
    """Go on with the trace of a message; without one, belong to no trace."""
    return _inside(begin(name, kind, value, attributes=attributes) if value else INVALID_SPAN)


def step(
    name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes = None
) -> AbstractContextManager[Span]:
    """A step of the trace that this task belongs to, if it belongs to one."""
    value = current_trace()
    return _inside(begin(name, kind, value, attributes=attributes)) if value else _UNTRACED


def batch(name: str, values: Iterable[str]) -> AbstractContextManager[Span]:
    """A trace of its own around what is done for many at once, with a link to each of theirs."""
    links = [Link(one) for value in values if value and (one := span_context(value)).is_valid]
    return _inside(begin(name, SpanKind.CONSUMER, links=links) if links else INVALID_SPAN)


def _inside(span: Span) -> AbstractContextManager[Span]:
    """Let what is done belong to `span`; end it."""
    return _UNTRACED if span is INVALID_SPAN and not current_trace() else _current(span)


@contextmanager
def _current(span: Span) -> Iterator[Span]:
    """Let what is done belong to `span`; end it. Of an error it has the kind, not the text."""
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield span
    except BaseException as error:
        failed(span, type(error).__name__)
        raise
    finally:
        contexts.detach(token)
        span.end()


def failed(span: Span, kind: str) -> None:
    """Note that what `span` stands for failed; `kind` is a word, because texts may hold secrets."""
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", kind)
