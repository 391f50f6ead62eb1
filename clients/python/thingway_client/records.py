"""Records of a history, and their conversion to tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Record:
    """Values that a device reported together."""

    ts: int
    """ms since 1970."""
    properties: dict[str, Any]

    @property
    def time(self) -> datetime:
        """Return `ts` as a time in UTC."""
        return datetime.fromtimestamp(self.ts / 1000, UTC)


def to_milliseconds(time: datetime | int | None) -> int | None:
    """Return a time in ms since 1970. A `datetime` without zone is local time."""
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time


def to_pandas(records: Iterable[Record]) -> "pd.DataFrame":
    """Return a column for each property, and the times (UTC) as index `ts`."""
    import pandas as pd  # noqa: PLC0415 (optional)

    rows = list(records)
    index = pd.to_datetime([row.ts for row in rows], unit="ms", utc=True).rename("ts")
    return pd.DataFrame([row.properties for row in rows], index=index)


def to_arrow(records: Iterable[Record]) -> "pa.Table":
    """Return a column for each property, and `ts` as timestamps in UTC."""
    import pyarrow as pa  # noqa: PLC0415 (optional)

    rows = list(records)
    names = dict.fromkeys(name for row in rows for name in row.properties)
    moments = pa.array([row.ts for row in rows], pa.timestamp("ms", "UTC"))
    columns = {name: pa.array([row.properties.get(name) for row in rows]) for name in names}
    return pa.table({"ts": moments, **columns})
