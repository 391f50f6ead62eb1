"""Codecs of products in memory, and the encoder of commands."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from libs.common.recent import Recent
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import Encoded, encoded
from services.device.lorawan.codec_worker import Call
from services.device.things.codec_model import Codec, CodecFailed
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


class Encoder:
    """Encodes for devices; one per process."""

    def __init__(self, codecs: KnownCodecs, workers: CodecWorkers) -> None:
        self._codecs = codecs
        self._workers = workers

    async def codec(self, tenant: str, model: str) -> Codec:
        """The codec of a product; raise `CodecFailed` when it has none that encodes."""
        known = (await self._codecs.of([(tenant, model)]))[tenant, model]
        if known.codec is None:
            raise CodecFailed(f"is missing: product {model} has none")
        if not known.codec.encoder:
            raise CodecFailed(f"of product {model} encodes nothing")
        return known.codec

    async def encode(
        self, tenant: str, model: str, values: Sequence[dict[str, Any]], port: int, at: int
    ) -> list[Encoded | CodecFailed]:
        """What becomes of each of `values` at a time (ms); raise `CodecFailed` as `codec` does.

        `port` is where it goes unless the codec says another.
        """
        codec = await self.codec(tenant, model)
        calls = [Call("encode", one, port, at) for one in values]
        outcomes = await self._workers.run(tenant, codec, calls)
        return [_result(codec, one.value, one.fault, port) for one in outcomes]


def _result(codec: Codec, value: Any, fault: str | None, port: int) -> Encoded | CodecFailed:
    if fault is not None:
        return CodecFailed(fault)
    try:
        return encoded(codec.encoder, value, port)
    except CodecFailed as error:
        return error
