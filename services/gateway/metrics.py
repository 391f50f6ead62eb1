"""What the gateway counts."""

from opentelemetry import metrics

_BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]
"""Upper bounds of the latency buckets, in seconds."""


class Metrics:
    """Requests with their latency, refusals for too many requests, failures of services."""

    def __init__(self) -> None:
        meter = metrics.get_meter("thingway")
        self._requests = meter.create_histogram(
            "thingway.gateway.requests",
            unit="s",
            description="Requests by route, service and status class; the count counts them",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self._limited = meter.create_counter(
            "thingway.gateway.limited", description="Requests refused with 429, by route"
        )
        self._failures = meter.create_counter(
            "thingway.gateway.upstream.failures",
            description="Exchanges that a service broke, by service and status answered",
        )
        self._attributes: dict[tuple[str, str, int], dict[str, str]] = {}

    def request(self, route: str, upstream: str, status: int, seconds: float) -> None:
        """Count a request that was answered with `status` after `seconds`."""
        key = (route, upstream, status // 100)
        attributes = self._attributes.get(key)
        if attributes is None:
            attributes = {"route": route, "upstream": upstream, "status": f"{status // 100}xx"}
            self._attributes[key] = attributes
        self._requests.record(seconds, attributes)

    def limited(self, route: str) -> None:
        """Count a request that came too soon."""
        self._limited.add(1, {"route": route})

    def upstream_failed(self, upstream: str, status: int) -> None:
        """Count an exchange that a service broke."""
        self._failures.add(1, {"upstream": upstream, "status": str(status)})
