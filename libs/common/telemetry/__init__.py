"""Traces and metrics: OpenTelemetry inside, Prometheus at `/metrics`, OTLP when asked."""

from libs.common.telemetry.setup import Telemetry, start_telemetry
from libs.common.telemetry.tracing import extract_context, inject_context, tracer

__all__ = ["Telemetry", "extract_context", "inject_context", "start_telemetry", "tracer"]
