"""Reads the frames of a batch with the codecs of their products."""

import asyncio
import time
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from libs.common.contracts.frames import Frame
from libs.common.decoding import INVALID_JSON
from libs.common.store.mongo import Document
from services.device.lorawan.codec_cache import KnownCodec, KnownCodecs
from services.device.lorawan.codec_runner import Budgets, CodecWorkers
from services.device.lorawan.codec_scripts import Judged, judge
from services.device.lorawan.codec_worker import Call, Outcome
from services.device.lorawan.frame_store import FRAMES, FrameStore, StoredFrame, document_of, settle
from services.device.telemetry.batch import Batch, GoodReport, KeptFrame, Refused
from services.device.telemetry.events import holds_write_only
from services.device.telemetry.ports import FrameDecoder
from services.device.telemetry.retention import Retention
from services.device.telemetry.uplink import FUTURE_MS, Uplink, frame_time
from services.device.things.codec_model import Codec
from services.device.things.model import Thing
from services.device.things.product_store import ProductKey

LOOK = 0.05
"""Seconds between two looks whether codecs are late."""
NO_CODEC = "the product has no codec"
SPENT = "has taken too much of the processor, and is asked again later"

_frame = msgspec.json.Decoder(Frame).decode


class _Unread(msgspec.Struct, frozen=True):
    uplink: Uplink
    thing: Thing
    frame: Frame
    ts: int


_Answers = dict[int, tuple[_Unread, KnownCodec, Judged] | Refused]
"""What codecs made of frames, by sequence."""


@dataclass(frozen=True, kw_only=True)
class CodecFrameDecoder(FrameDecoder):
    """Decodes frames in codec processes; one per process of ours."""

    store: FrameStore
    codecs: KnownCodecs
    workers: CodecWorkers
    retention: Retention
    retention_ms: int
    """That of the platform, for what devices remember."""
    frame_days: int
    budgets: Budgets = field(default_factory=Budgets)
    _late: dict[str, list[asyncio.Task[_Answers]]] = field(default_factory=dict, init=False)
    """By tenant, what is asked and was not answered in time."""

    async def decode(self, batch: Batch, *, wait: bool) -> set[str]:
        """Decode the unread frames of a batch: the results join its reports and refused uplinks.

        Return the tenants whose codecs are late. Their frames remain unread, and continue when
        they are decoded again. With `wait` no codec is late.
        """
        tenants: dict[str, list[tuple[Uplink, Thing]]] = defaultdict(list)
        for uplink, thing in batch.unread:
            tenants[thing.tenant].append((uplink, thing))
        asked = {
            tenant: asyncio.ensure_future(self._ask(tenant, some))
            for tenant, some in tenants.items()
        }
        late, began = set(asked), time.monotonic()
        while late and (wait or not all(self.workers.is_late(one, began) for one in late)):
            await asyncio.wait(asked.values(), timeout=None if wait else LOOK)
            late = {tenant for tenant, task in asked.items() if not task.done()}
        answers = _Answers()
        for tenant, task in asked.items():
            if tenant in late:
                self._late.setdefault(tenant, []).append(task)
            else:
                answers |= task.result()
        unread, batch.unread = batch.unread, []
        for uplink, thing in unread:
            if thing.tenant in late:
                batch.unread.append((uplink, thing))
            elif isinstance(answer := answers[uplink.sequence], Refused):
                batch.refused.append(answer)
            else:
                self._keep(batch, *answer)
        _settle(batch, ())
        return late

    async def remove_stored(self, batch: Batch) -> None:
        """Let the frames of a batch that are stored already count as repeated."""
        _settle(batch, await self.store.like(batch.frames))

    def document(self, frame: KeptFrame) -> tuple[str, Document]:
        """Return the collection and the document in which a frame is stored."""
        return FRAMES, document_of(frame)

    async def _ask(self, tenant: str, unread: Iterable[tuple[Uplink, Thing]]) -> _Answers:
        earlier = await asyncio.gather(*self._late.pop(tenant, []), return_exceptions=True)
        answers: _Answers = dict(ChainMap(*(one for one in earlier if isinstance(one, dict))))
        products: dict[ProductKey, list[_Unread]] = defaultdict(list)
        for uplink, thing in unread:
            if uplink.sequence in answers:
                continue
            try:
                frame = _frame(uplink.payload)
            except INVALID_JSON as error:
                answers[uplink.sequence] = Refused(uplink, f"is no frame: {error}", thing)
                continue
            kept_ms = await self.retention.kept_ms(thing.tenant, thing.model)
            ts = frame_time(frame.ts, uplink.received, kept_ms)
            products[tenant, thing.model].append(_Unread(uplink, thing, frame, ts))
        for key, known in (await self.codecs.of(products)).items():
            frames = products[key]
            for one, judged in zip(frames, await self._judged(tenant, known, frames), strict=True):
                answers[one.uplink.sequence] = one, known, judged
        return answers

    async def _judged(
        self, tenant: str, known: KnownCodec, frames: Sequence[_Unread]
    ) -> list[Judged]:
        """What is taken of frames of a product."""
        codec = known.codec
        if codec is None:
            return [Judged({}, [], [], NO_CODEC)] * len(frames)
        calls = [Call("decode", one.frame.data, one.frame.port, one.ts) for one in frames]
        outcomes = await self._outcomes(tenant, known, codec, calls)
        return [
            judge(
                codec,
                outcome,
                one.thing.tsl,
                one.uplink.received - self.retention_ms,
                one.uplink.received + FUTURE_MS,
            )
            for one, outcome in zip(frames, outcomes, strict=True)
        ]

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


def _settle(batch: Batch, stored: Iterable[StoredFrame]) -> None:
    """Let frames that repeat one of a batch, or one that is `stored`, count as repeated."""
    batch.frames, repeated = settle(batch.frames, stored)
    batch.remove_repeated(repeated)


def stamp_of(version: str, thing: Thing) -> str:
    """What a frame of a device is read with: codec and TSL."""
    return f"{version}/{thing.tsl_version}"
