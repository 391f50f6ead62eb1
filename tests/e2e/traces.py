"""An OTLP receiver: takes what the platform exports over OTLP/HTTP, and keeps the spans."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.e2e.waiting import until

MAX_SPANS = 50_000
"""Spans that are kept."""
SHARE = 0.1
"""Share of recorded traces; recording every trace takes a fifth of the processor time."""


@dataclass(frozen=True)
class Seen:
    """A span that was received."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    """Empty for the first of a trace."""
    links: frozenset[tuple[str, str]]
    """Trace and span of each."""
    attributes: dict[str, Any]

    @property
    def link(self) -> tuple[str, str]:
        """Return the trace and span id, as in a link to it."""
        return self.trace, self.id


class Receiver(ThreadingHTTPServer):
    """Listens on a free port of loopback."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: deque[Seen] = deque(maxlen=MAX_SPANS)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings to record a share of the traces and send them here soon."""
        return {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{self.server_port}/v1/traces",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(SHARE),
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
        }

    async def first(self, fits: Callable[[Seen], bool]) -> Seen:
        """Return the first matching span, received already or later."""

        async def found() -> Seen | None:
            return next((span for span in list(self.spans) if fits(span)), None)

        seen = await until(found)
        assert seen is not None
        return seen

    async def way_to(self, span: Seen) -> list[Seen]:
        """Return a span and its parents, up to the first of its trace."""
        way = [span]
        while way[-1].parent:
            above = way[-1].trace, way[-1].parent
            way.append(await self.first(partial(_is, above)))
        return way


def _is(link: tuple[str, str], span: Seen) -> bool:
    return span.link == link


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.spans.extend(read(body))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def read(body: bytes) -> list[Seen]:
    """Return the spans of a request."""
    found = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _values(resource.resource.attributes)["service.name"]
        found += [
            Seen(
                service=service,
                name=span.name,
                trace=span.trace_id.hex(),
                id=span.span_id.hex(),
                parent=span.parent_span_id.hex(),
                links=frozenset((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                attributes=_values(span.attributes),
            )
            for scope in resource.scope_spans
            for span in scope.spans
        ]
    return found


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@cache
def receiver() -> Receiver:
    """Return the receiver of this pytest process."""
    return Receiver()
