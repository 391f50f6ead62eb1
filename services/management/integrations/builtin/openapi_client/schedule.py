"""When a tenant is synced next."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from services.management.integrations.builtin.openapi_client.manifest import LONGEST, SHORTEST


def due_in(values: Mapping[str, Any], last: datetime | None) -> float | None:
    """Seconds until the next scheduled sync, 0 when it is due; None when there is none."""
    scheduled = values.get("scheduled") or {}
    period = scheduled.get("period")
    if not scheduled.get("enabled") or not isinstance(period, int):
        return None
    period = min(max(period, SHORTEST), LONGEST)
    return 0.0 if last is None else max(0.0, last.timestamp() + period - time.time())
