"""A row of the table that `make bench` prints."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    """One measurement; `ratio` and `bar` are None without a comparison."""

    name: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    bar: str = ""
    ok: bool | None = None


def median_value(values: list[float]) -> float:
    """Return the median."""
    return median(values)
