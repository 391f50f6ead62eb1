"""Traces and metrics: OpenTelemetry inside, Prometheus at `/metrics`, OTLP when asked."""

from libs.common.telemetry.setup import Telemetry, start_telemetry

__all__ = ["Telemetry", "start_telemetry"]
