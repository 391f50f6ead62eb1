"""A row of the table that `make bench` prints."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    """One measurement; `ratio` and `bar` are None where there is nothing to compare with."""

    name: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    bar: str = ""
    ok: bool | None = None


def middle(values: list[float]) -> float:
    """The median."""
    return median(values)
