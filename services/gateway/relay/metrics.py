"""What the relay counts."""

from opentelemetry import metrics


class RelayMetrics:
    """Counters of one process."""

    def __init__(self) -> None:
        self._refused = metrics.get_meter("thingway").create_counter(
            "thingway_relay_refused",
            description="Messages on plain NATS that kept to no rule and were not passed on",
        )

    def refused(self, subject: str, code: int) -> None:
        """Count a message that was not passed on."""
        self._refused.add(1, {"subject": subject, "code": code})
