"""Bytes that the codecs of products make of values."""

from collections.abc import Sequence
from typing import Any

from services.device.codecs.scripts import Encoded, encoded
from services.device.codecs.worker import Call
from services.device.codecs.workers import CodecWorkers
from services.device.products.codec.known import KnownCodecs
from services.device.things.codec_model import Codec, CodecFailed


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
