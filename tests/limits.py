"""Limits of tenants where no `auth` is there to say any."""

from typing import Any

from libs.common.contracts.limits import Limits
from libs.common.errors import Unavailable
from libs.common.limits.tenants import LimitsCache


class _Nobody:
    """An RPC client that nobody answers."""

    async def call(self, *_: Any, **__: Any) -> Any:
        raise Unavailable("nobody answers")


def limits_of(**limits: int) -> LimitsCache:
    """What every tenant may use."""
    return LimitsCache(_Nobody(), Limits(**limits))  # type: ignore[arg-type]
