"""Spans of reports: one for each that belongs to a recorded trace, from arrival to acknowledged."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from opentelemetry.trace import Span, SpanKind

from libs.common.telemetry.tracing import batch, begin, failed, header_of, is_chosen, trace_of
from services.device.reports.uplink import Uplink

NAME = "ingest message"


class ReportSpans:
    """The spans of one batch; `uplinks` know theirs."""

    def __init__(self, uplinks: Iterable[Uplink]) -> None:
        self._spans: dict[int, Span] = {}
        self.uplinks = [self._begun(uplink) for uplink in uplinks]

    def _begun(self, uplink: Uplink) -> Uplink:
        """Begin the span of one that goes on with a trace, or begins one: MQTT has no headers."""
        parent = trace_of(uplink.message.headers)
        if not parent and not is_chosen():
            return uplink
        span = begin(
            NAME,
            SpanKind.CONSUMER,
            parent,
            start=uplink.received * 1_000_000,
            attributes={
                "messaging.system": "nats",
                "messaging.destination.name": uplink.channel,
                "messaging.message.id": uplink.key,
                "thingway.sn": uplink.sn,
            },
        )
        self._spans[uplink.sequence] = span
        return msgspec.structs.replace(uplink, trace=header_of(span))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """One span around what is done for all of them; theirs end with it."""
        with batch("ingest batch", [one.trace for one in self.uplinks]) as span:
            try:
                yield
            except BaseException as error:
                for one in self._spans.values():
                    failed(one, type(error).__name__)
                raise
            finally:
                for one in self._spans.values():
                    one.add_link(span.get_span_context())
                    one.end()

    def refuse(self, uplinks: Sequence[Uplink]) -> None:
        """Note which of them were refused."""
        for uplink in uplinks:
            if uplink.trace:
                failed(self._spans[uplink.sequence], "refused")
