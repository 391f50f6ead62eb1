"""After how much silence a device of a product is OFFLINE."""

import time

from libs.common.recent import Recent
from services.device.things.model import Thing
from services.device.things.product_store import ProductStore

FRESH = 5.0
"""Seconds after which a product is read anew."""
KEPT = 10_000
"""Most products that are kept."""


class Silence:
    """The limits of products; a change is known within seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._of: Recent[tuple[str, str], tuple[float, float | None]] = Recent(KEPT)

    async def life_of(self, thing: Thing) -> float | None:
        """Seconds, None where the product has no limit; raise `StoreError`."""
        key, now = (thing.tenant, thing.model), time.monotonic()
        known = self._of.get(key)
        if known is None or known[0] + FRESH <= now:
            minutes = await self._products.offline_timeout(*key)
            known = now, None if minutes is None else minutes * 60.0
            self._of.put(key, known)
        return known[1]
