"""What nodes need of entities, to be given or faked."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Entities(Protocol):
    """Reads and writes entities of a tenant, as the platform."""

    async def values(self, tenant: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Latest values; None of one that has none, and what is unknown is missing."""

    async def update(self, tenant: str, exchange: Mapping[str, Any], hops: int) -> Sequence[str]:
        """Set properties; give the keys that were set. Others than properties are passed over."""

    async def call(
        self, tenant: str, exchange: Mapping[str, Any], hops: int, seconds: float
    ) -> Mapping[str, Any]:
        """Call services by their inputs, or by themselves; their outputs in one map."""
