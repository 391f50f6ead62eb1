"""Reads the frames of a batch with the codecs of their products."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from libs.common.contracts.frames import Frame
from libs.common.decoding import INVALID_JSON
from services.device.codecs.budget import Budgets
from services.device.codecs.model import Codec
from services.device.codecs.worker import Call, Outcome
from services.device.codecs.workers import CodecWorkers
from services.device.products.codec.known import KnownCodec, KnownCodecs
from services.device.products.store import ProductKey
from services.device.reports.batch import Batch, GoodReport, Refused
from services.device.reports.checking import FUTURE_MS, frame_time
from services.device.reports.concealing import holds_write_only
from services.device.reports.frames.judging import Judged, judge
from services.device.reports.frames.model import KeptFrame
from services.device.reports.retention.days import Retention
from services.device.reports.uplink import Uplink
from services.device.things import Thing

NO_CODEC = "the product has no codec"
SPENT = "has taken too much of the processor, and is asked again later"

_frame = msgspec.json.Decoder(Frame).decode


class _Unread(msgspec.Struct, frozen=True):
    uplink: Uplink
    thing: Thing
    frame: Frame
    ts: int


@dataclass(frozen=True, kw_only=True)
class FrameReader:
    """Makes reports of frames; one per process."""

    codecs: KnownCodecs
    workers: CodecWorkers
    retention: Retention
    retention_ms: int
    """That of the platform, for what devices remember."""
    frame_days: int
    budgets: Budgets = field(default_factory=Budgets)

    async def read(self, batch: Batch) -> None:
        """Sort the unread frames of a batch to what they report and why they are refused."""
        products: dict[ProductKey, list[_Unread]] = defaultdict(list)
        for uplink, thing in batch.unread:
            try:
                frame = _frame(uplink.payload)
            except INVALID_JSON as error:
                batch.refused.append(Refused(uplink, f"is no frame: {error}", thing))
                continue
            kept_ms = await self.retention.kept_ms(thing.tenant, thing.model)
            ts = frame_time(frame.ts, uplink.received, kept_ms)
            unread = _Unread(uplink, thing, frame, ts)
            products[thing.tenant, thing.model].append(unread)
        batch.unread = []
        known = await self.codecs.of(products)
        tenants: dict[str, list[ProductKey]] = defaultdict(list)
        for key in products:
            tenants[key[0]].append(key)

        async def each(keys: Iterable[ProductKey]) -> None:
            """One after the other, for they have one process and one budget."""
            for key in keys:
                await self._read(known[key], key[0], products[key], batch)

        await asyncio.gather(*map(each, tenants.values()))
        batch.settle()

    async def _read(
        self, known: KnownCodec, tenant: str, frames: Sequence[_Unread], batch: Batch
    ) -> None:
        """Read frames of a product."""
        codec = known.codec
        if codec is None:
            for one in frames:
                self._keep(batch, one, known, Judged({}, [], [], NO_CODEC))
            return
        calls = [Call("decode", one.frame.data, one.frame.port, one.ts) for one in frames]
        outcomes = await self._outcomes(tenant, known, codec, calls)
        for one, outcome in zip(frames, outcomes, strict=True):
            oldest = one.uplink.received - self.retention_ms
            newest = one.uplink.received + FUTURE_MS
            self._keep(batch, one, known, judge(codec, outcome, one.thing.tsl, oldest, newest))

    async def _outcomes(
        self, tenant: str, known: KnownCodec, codec: Codec, calls: Sequence[Call]
    ) -> Sequence[Outcome]:
        """What a codec makes of frames; nothing, when it has taken too much of the processor."""
        count, version = len(calls), known.version
        left = self.budgets.left(tenant, version, count, time.monotonic())
        if left <= 0:
            return [Outcome(fault=SPENT)] * count
        answered = await self.workers.run_within(left, tenant, codec, calls)
        self.budgets.spend(tenant, version, count, answered.seconds)
        return answered.outcomes

    def _keep(self, batch: Batch, one: _Unread, known: KnownCodec, judged: Judged) -> None:
        uplink, thing, ts = one.uplink, one.thing, one.ts
        if judged.reason:
            batch.refused.append(Refused(uplink, judged.reason, thing, judged.faults))
        elif judged.properties:
            report = GoodReport(uplink, thing, ts, judged.properties, judged.faults)
            batch.reports.append(report)
        kept = KeptFrame(
            uplink=uplink,
            thing=thing,
            frame=one.frame,
            ts=ts,
            stamp=stamp_of(known.version, thing),
            days=known.frame_days or self.frame_days,
            reason=judged.said,
            past=judged.past,
            conceals=holds_write_only(judged.faults),
        )
        batch.frames.append(kept)


def stamp_of(version: str, thing: Thing) -> str:
    """What a frame of a device is read with: codec and TSL."""
    return f"{version}/{thing.tsl_version}"
