"""The metrics of the gateway."""

from collections.abc import Iterable

from opentelemetry import metrics

_LATENCY_BUCKET_SECONDS = [
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
]
"""Upper bounds of the latency buckets, in seconds."""


REQUESTS_PER_SAMPLE = 10
"""One in this number of requests is timed: recording takes 7 µs, a tenth of the gateway's time for
a request."""


class _RequestTally:
    """The number of requests of one route, service and status class (`2xx`)."""

    def __init__(self, route: str, upstream: str, status: int) -> None:
        self.attributes = {"route": route, "upstream": upstream, "status": f"{status}xx"}
        self.count = 0


class Metrics:
    """Counts requests, rejections with 429 and failures of services, and measures latency."""

    def __init__(self) -> None:
        meter = metrics.get_meter("thingway")
        meter.create_observable_counter(
            "thingway.gateway.requests",
            [self._observe],
            description="Requests by route, service and status class",
        )
        self._latency = meter.create_histogram(
            "thingway.gateway.latency",
            unit="s",
            description=f"Time to answer; one request in {REQUESTS_PER_SAMPLE} is measured",
            explicit_bucket_boundaries_advisory=_LATENCY_BUCKET_SECONDS,
        )
        self._limited = meter.create_counter(
            "thingway.gateway.limited", description="Requests rejected with 429, by route"
        )
        self._failures = meter.create_counter(
            "thingway.gateway.upstream.failures",
            description="Exchanges that a service failed, by service and status",
        )
        self._tallies: dict[tuple[str, str, int], _RequestTally] = {}

    def count_request(self, route: str, upstream: str, status: int, seconds: float) -> None:
        """Count a request that was answered with `status` after `seconds`."""
        key = (route, upstream, status // 100)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _RequestTally(*key)
        if tally.count % REQUESTS_PER_SAMPLE == 0:
            self._latency.record(seconds, tally.attributes)
        tally.count += 1

    def count_limited(self, route: str) -> None:
        """Count a request rejected with 429."""
        self._limited.add(1, {"route": route})

    def count_upstream_failure(self, upstream: str, status: int) -> None:
        """Count an exchange that a service failed."""
        self._failures.add(1, {"upstream": upstream, "status": str(status)})

    def _observe(self, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        tallies = list(self._tallies.values())
        return [metrics.Observation(tally.count, tally.attributes) for tally in tallies]
