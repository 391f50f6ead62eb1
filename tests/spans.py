"""Spans of a test, in memory."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from libs.common.telemetry import tracing


def kept_spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Record every trace of the test, and give what keeps the spans that have ended."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))
    monkeypatch.setattr(tracing.Sampling, "share", 1.0)
    return exporter
