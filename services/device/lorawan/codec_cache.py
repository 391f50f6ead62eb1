"""Cache of codecs."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from libs.common.lru_cache import LruCache
from services.device.things.codec_model import Codec
from services.device.things.product_model import extract_codec
from services.device.things.product_store import ProductKey, ProductStore

CODEC_CHECK_SECONDS = 2.0
"""Seconds after which the version of a cached codec is checked."""
MAX_CACHED_CODECS = 2_000
"""Maximum number of products in the cache."""


class CachedCodec(NamedTuple):
    """The codec of a product and its retention of frames."""

    codec: Codec | None
    """None for a product without a codec."""
    version: str = ""
    frame_days: int | None = None
    """Retention of frames in days, if the product sets one."""


class CodecCache:
    """Caches codecs of products; a changed codec is used after `CODEC_CHECK_SECONDS` at most."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._known: LruCache[ProductKey, tuple[float, CachedCodec]] = LruCache(MAX_CACHED_CODECS)

    async def find_all(self, keys: Iterable[ProductKey]) -> dict[ProductKey, CachedCodec]:
        """Return the codecs of products; `codec` is None for a product without a codec.

        One query reads all versions that must be checked. One more query reads each changed codec.
        """
        now = time.monotonic()
        codecs: dict[ProductKey, CachedCodec] = {}
        old: list[ProductKey] = []
        for key in keys:
            read, cached = self._known.get(key) or (-CODEC_CHECK_SECONDS, CachedCodec(None))
            codecs[key] = cached
            if read + CODEC_CHECK_SECONDS <= now:
                old.append(key)
        if old:
            heads = await self._products.find_frame_settings(old)
            for key in old:
                version, days = heads.get(key, ("", None))
                codec = await self._refresh_codec(key, codecs[key], version)
                codecs[key] = codec._replace(frame_days=days)
                self._known.put(key, (now, codecs[key]))
        return codecs

    async def _refresh_codec(
        self, key: ProductKey, cached: CachedCodec, version: str
    ) -> CachedCodec:
        if version == cached.version:
            return cached
        stored = await self._products.codecs.find(*key) if version else None
        if stored is None:
            return CachedCodec(None)
        return CachedCodec(extract_codec(stored), stored.version)
