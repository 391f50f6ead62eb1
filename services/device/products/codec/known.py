"""The codecs of products as those need them that read many frames: kept ready, by product."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from libs.common.recent import Recent
from services.device.things.codec_model import Codec
from services.device.things.product_model import codec_of
from services.device.things.product_store import ProductKey, ProductStore

LIFE = 2.0
"""Seconds after which it is asked anew which codec a product has."""
KEPT = 2_000
"""Products whose codecs are kept."""


class KnownCodec(NamedTuple):
    """What a product says of frames."""

    codec: Codec | None
    """None when it has none."""
    version: str = ""
    frame_days: int | None = None
    """Days for which frames are kept, when it has some of its own."""


class KnownCodecs:
    """The codecs of one process; a change is known within seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._known: Recent[ProductKey, tuple[float, KnownCodec]] = Recent(KEPT)

    async def of(self, keys: Iterable[ProductKey]) -> dict[ProductKey, KnownCodec]:
        """The codecs of products: one look at their versions, one more for each that is new."""
        now = time.monotonic()
        found: dict[ProductKey, KnownCodec] = {}
        old: list[ProductKey] = []
        for key in keys:
            read, known = self._known.get(key) or (-LIFE, KnownCodec(None))
            found[key] = known
            if read + LIFE <= now:
                old.append(key)
        if old:
            heads = await self._products.frame_heads(old)
            for key in old:
                version, days = heads.get(key, ("", None))
                codec = await self._codec(key, found[key], version)
                found[key] = codec._replace(frame_days=days)
                self._known.put(key, (now, found[key]))
        return found

    async def _codec(self, key: ProductKey, known: KnownCodec, version: str) -> KnownCodec:
        if version == known.version:
            return known
        stored = await self._products.codecs.find(*key) if version else None
        if stored is None:
            return KnownCodec(None)
        return KnownCodec(codec_of(stored), stored.version)
