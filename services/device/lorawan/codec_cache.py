"""Cache of codecs, and the encoder of commands."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from libs.common.lru_cache import LruCache
from services.device.lorawan.codec_calls import Call, Outcome
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import EncodedDownlink, read_encoded
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.product_model import codec_scripts
from services.device.things.product_store import ProductKey, ProductStore

CODEC_SECONDS = 2.0
"""Seconds after which the version of a cached codec is checked."""
MAX_CODECS = 2_000
"""Maximum number of products in the cache."""


class CachedCodec(NamedTuple):
    """The codec of a product and its retention of frames."""

    codec: Codec | None
    """None for a product without a codec."""
    version: str = ""
    frame_days: int | None = None
    """Retention of frames in days, if the product sets one."""


class CodecCache:
    """Codecs of this process; a change takes effect within seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._known: LruCache[ProductKey, tuple[float, CachedCodec]] = LruCache(MAX_CODECS)

    async def find_all(self, keys: Iterable[ProductKey]) -> dict[ProductKey, CachedCodec]:
        """Return the codecs of products.

        One query reads all versions that must be checked, and one more each codec that changed.
        """
        now = time.monotonic()
        found: dict[ProductKey, CachedCodec] = {}
        old: list[ProductKey] = []
        for key in keys:
            read, known = self._known.get(key) or (-CODEC_SECONDS, CachedCodec(None))
            found[key] = known
            if read + CODEC_SECONDS <= now:
                old.append(key)
        if old:
            heads = await self._products.find_frame_settings(old)
            for key in old:
                version, days = heads.get(key, ("", None))
                codec = await self._codec(key, found[key], version)
                found[key] = codec._replace(frame_days=days)
                self._known.put(key, (now, found[key]))
        return found

    async def _codec(self, key: ProductKey, known: CachedCodec, version: str) -> CachedCodec:
        if version == known.version:
            return known
        stored = await self._products.codecs.find(*key) if version else None
        if stored is None:
            return CachedCodec(None)
        return CachedCodec(codec_scripts(stored), stored.version)


class CommandEncoder:
    """Encodes commands; one per process."""

    def __init__(self, codecs: CodecCache, workers: CodecWorkers) -> None:
        self._codecs = codecs
        self._workers = workers

    async def codec(self, tenant: str, model: str) -> Codec:
        """Return the codec of a product; raise `CodecFailed` if it cannot encode."""
        known = (await self._codecs.find_all([(tenant, model)]))[tenant, model]
        if known.codec is None:
            raise CodecFailed(f"of product {model} is missing")
        if not known.codec.encoder:
            raise CodecFailed(f"of product {model} has no encoder")
        return known.codec

    async def encode(
        self, tenant: str, model: str, values: Sequence[dict[str, Any]], port: int, at: int
    ) -> list[EncodedDownlink | CodecFailed]:
        """Encode each of `values` at a time (ms); raise `CodecFailed` as `codec` does.

        `port` applies unless the codec returns another one.
        """
        codec = await self.codec(tenant, model)
        calls = [Call("encode", one, port, at) for one in values]
        outcomes = await self._workers.run(tenant, codec, calls)
        return [_result(codec, one, port) for one in outcomes]


def _result(codec: Codec, outcome: Outcome, port: int) -> EncodedDownlink | CodecFailed:
    try:
        return read_encoded(codec.encoder, outcome.result(), port)
    except CodecFailed as error:
        return error
