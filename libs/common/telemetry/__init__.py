"""Traces and metrics with OpenTelemetry, exported to Prometheus and over OTLP.

Metrics are always available to Prometheus (`/metrics`). Traces and metrics are exported over
OTLP/HTTP if `OTEL_EXPORTER_OTLP_ENDPOINT` (or its signal-specific form) is set. Otherwise no span
is recorded, and tracing costs nothing. `OTEL_TRACES_SAMPLER` sets the share of recorded traces
(`tracing.read_sampled_share`).
"""

import os
from dataclasses import dataclass

from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from prometheus_client import REGISTRY, generate_latest

from libs.common.telemetry.tracing import set_sampled_share
from libs.common.version import VERSION

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass
class Telemetry:
    """The telemetry of a process."""

    tracing: TracerProvider | None
    metering: MeterProvider

    def exposition(self) -> bytes:
        """Return the metrics of this process in Prometheus text format."""
        return generate_latest(REGISTRY)

    def shutdown(self) -> None:
        """Export pending data and stop."""
        if self.tracing:
            self.tracing.shutdown()
        self.metering.shutdown()


def _exports(signal: str) -> bool:
    specific = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    return bool(os.environ.get(ENDPOINT_VARIABLE) or os.environ.get(specific))


def start_telemetry(service: str, replicas: int = 1) -> Telemetry:
    """Install the global providers of this process; call once.

    `replicas` is the number of processes of the service that should run.

    Raises `SettingsInvalid` for invalid sampling variables.
    """
    resource = Resource.create({"service.name": f"thingway-{service}"})
    readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False)]
    if _exports("METRICS"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415 - rare
            OTLPMetricExporter,
        )

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    metering = MeterProvider(resource=resource, metric_readers=readers)
    metrics.set_meter_provider(metering)
    meter = metrics.get_meter("thingway")
    version = meter.create_gauge("thingway_build_info", description="1, with service and version")
    version.set(1, {"service": service, "version": VERSION})
    expected = meter.create_gauge(
        "thingway_replicas_expected", description="Processes of the service that should run"
    )
    expected.set(replicas, {"service": service})
    tracing = None
    if _exports("TRACES"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - rare
            OTLPSpanExporter,
        )

        set_sampled_share()
        tracing = TracerProvider(ALWAYS_ON, resource)  # unsampled traces start no span
        tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracing)
    return Telemetry(tracing, metering)
