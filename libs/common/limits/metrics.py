"""Counts refusals of whoever went beyond a limit of `contracts.limits.Limits`."""

from opentelemetry import metrics

_limited = metrics.get_meter("thingway").create_counter(
    "thingway_limited", description="What was refused beyond a limit, by limit and tenant"
)


def count_limited(limit: str, tenant: str, number: int = 1) -> None:
    """Count refusals; `limit` is the field of `Limits` in camelCase (`eachRequests`)."""
    _limited.add(number, {"limit": limit, "tenant": tenant})
