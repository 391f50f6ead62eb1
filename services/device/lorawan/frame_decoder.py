"""Decoder of the frames in a batch, by the codecs of their products."""

import asyncio
import time
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from libs.common.contracts.frames import Frame
from libs.common.decoding import JSON_ERRORS
from libs.common.store.mongo import Document
from services.device.lorawan.codec_cache import CachedCodec, CodecCache
from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_runner import CodecBudgets, CodecWorkers
from services.device.lorawan.codec_scripts import DecodeResult, check_decoded_frame
from services.device.lorawan.frame_store import (
    FRAMES_COLLECTION,
    FrameStore,
    StoredFrame,
    build_frame_document,
    split_repeated,
)
from services.device.telemetry.batch import Batch, KeptFrame, RejectedUplink, ValidReport
from services.device.telemetry.events import concerns_write_only
from services.device.telemetry.ports import FrameDecoder, LateTenants
from services.device.telemetry.retention import Retention
from services.device.telemetry.uplink import MAX_CLOCK_AHEAD_MS, Uplink, choose_frame_time
from services.device.things.codec_model import Codec
from services.device.things.model import Thing
from services.device.things.product_store import ProductKey

LATE_CHECK_SECONDS = 0.05
"""Seconds between two checks for late codecs."""
NO_CODEC_REASON = "the product has no codec"
BUDGET_SPENT_REASON = "exceeded its processor time and runs again later"

_decode_frame = msgspec.json.Decoder(Frame).decode


class _ParsedFrame(msgspec.Struct, frozen=True):
    uplink: Uplink
    thing: Thing
    frame: Frame
    ts: int


_ResultBySequence = dict[int, tuple[_ParsedFrame, CachedCodec, DecodeResult] | RejectedUplink]
"""A decoded frame, its codec and result, or its rejection, by the sequence of the uplink."""


@dataclass(frozen=True, kw_only=True)
class CodecFrameDecoder(FrameDecoder):
    """Decodes frames in codec processes; each ingest process has one decoder."""

    store: FrameStore
    codecs: CodecCache
    workers: CodecWorkers
    retention: Retention
    retention_ms: int
    """Retention of the platform, which limits past readings."""
    frame_days: int
    budgets: CodecBudgets = field(default_factory=CodecBudgets)
    _late: dict[str, list[asyncio.Task[_ResultBySequence]]] = field(
        default_factory=dict, init=False
    )
    """Unfinished calls of late codecs, by tenant."""

    async def decode(self, batch: Batch, *, wait: bool) -> LateTenants:
        """Decode the undecoded frames of a batch and add the results to it.

        Return the tenants whose codecs are late. Their frames stay undecoded, and the next call
        continues to decode them. With `wait`, the call waits for all codecs.
        """
        tenants: dict[str, list[tuple[Uplink, Thing]]] = defaultdict(list)
        for uplink, thing in batch.undecoded:
            tenants[thing.tenant].append((uplink, thing))
        tasks = {
            tenant: asyncio.ensure_future(self._decode_tenant(tenant, frames))
            for tenant, frames in tenants.items()
        }
        late, began = set(tasks), time.monotonic()
        while late and (wait or not all(self.workers.is_late(tenant, began) for tenant in late)):
            await asyncio.wait(tasks.values(), timeout=None if wait else LATE_CHECK_SECONDS)
            late = {tenant for tenant, task in tasks.items() if not task.done()}
        answers = _ResultBySequence()
        for tenant, task in tasks.items():
            if tenant in late:
                self._late.setdefault(tenant, []).append(task)
            else:
                answers |= task.result()
        unread, batch.undecoded = batch.undecoded, []
        for uplink, thing in unread:
            if thing.tenant in late:
                batch.undecoded.append((uplink, thing))
            elif isinstance(answer := answers[uplink.sequence], RejectedUplink):
                batch.rejected.append(answer)
            else:
                self._add_result(batch, *answer)
        _remove_repeated(batch, ())
        return late

    async def mark_stored_as_duplicates(self, batch: Batch) -> None:
        """Move frames of a batch that repeat a stored frame to its duplicates."""
        _remove_repeated(batch, await self.store.find_stored(batch.frames))

    def build_document(self, frame: KeptFrame) -> tuple[str, Document]:
        """Return the collection and the document in which a frame is stored."""
        return FRAMES_COLLECTION, build_frame_document(frame)

    async def _decode_tenant(
        self, tenant: str, unread: Iterable[tuple[Uplink, Thing]]
    ) -> _ResultBySequence:
        earlier = await asyncio.gather(*self._late.pop(tenant, []), return_exceptions=True)
        answers: _ResultBySequence = dict(
            ChainMap(*(decoded for decoded in earlier if isinstance(decoded, dict)))
        )
        products: dict[ProductKey, list[_ParsedFrame]] = defaultdict(list)
        for uplink, thing in unread:
            if uplink.sequence in answers:
                continue
            try:
                frame = _decode_frame(uplink.payload)
            except JSON_ERRORS as error:
                reason = f"is not a valid frame: {error}"
                answers[uplink.sequence] = RejectedUplink(uplink, reason, thing)
                continue
            kept_ms = await self.retention.kept_ms(thing.tenant, thing.model)
            ts = choose_frame_time(frame.ts, uplink.received, kept_ms)
            products[tenant, thing.model].append(_ParsedFrame(uplink, thing, frame, ts))
        for key, cached in (await self.codecs.find_all(products)).items():
            frames = products[key]
            results = await self._decode_product(tenant, cached, frames)
            for parsed, result in zip(frames, results, strict=True):
                answers[parsed.uplink.sequence] = parsed, cached, result
        return answers

    async def _decode_product(
        self, tenant: str, cached: CachedCodec, frames: Sequence[_ParsedFrame]
    ) -> list[DecodeResult]:
        codec = cached.codec
        if codec is None:
            return [DecodeResult({}, [], [], NO_CODEC_REASON)] * len(frames)
        calls = [
            CodecCall("decode", parsed.frame.data, parsed.frame.port, parsed.ts)
            for parsed in frames
        ]
        outcomes = await self._run_codec(tenant, cached, codec, calls)
        return [
            check_decoded_frame(
                codec,
                outcome,
                parsed.thing.tsl,
                parsed.uplink.received - self.retention_ms,
                parsed.uplink.received + MAX_CLOCK_AHEAD_MS,
            )
            for parsed, outcome in zip(frames, outcomes, strict=True)
        ]

    async def _run_codec(
        self, tenant: str, cached: CachedCodec, codec: Codec, calls: Sequence[CodecCall]
    ) -> Sequence[CallOutcome]:
        """Run a codec within its budget; without budget each outcome is a fault."""
        count, version = len(calls), cached.version
        budget = self.budgets.seconds_left(tenant, version, count, time.monotonic())
        if budget <= 0:
            return [CallOutcome(fault=BUDGET_SPENT_REASON)] * count
        answered = await self.workers.run_within(budget, tenant, codec, calls)
        self.budgets.spend(tenant, version, count, answered.seconds)
        return answered.outcomes

    def _add_result(
        self, batch: Batch, parsed: _ParsedFrame, cached: CachedCodec, result: DecodeResult
    ) -> None:
        uplink, thing, ts = parsed.uplink, parsed.thing, parsed.ts
        if result.reason:
            batch.rejected.append(RejectedUplink(uplink, result.reason, thing, result.faults))
        elif result.properties:
            report = ValidReport(uplink, thing, ts, result.properties, result.faults)
            batch.reports.append(report)
        kept_frame = KeptFrame(
            uplink=uplink,
            thing=thing,
            frame=parsed.frame,
            ts=ts,
            stamp=format_decoder_versions(cached.version, thing),
            days=cached.frame_days or self.frame_days,
            reason=result.rejection_reason,
            past=result.past,
            conceals=concerns_write_only(result.faults),
        )
        batch.frames.append(kept_frame)


def _remove_repeated(batch: Batch, stored: Iterable[StoredFrame]) -> None:
    """Move frames that repeat another frame of the batch or a stored frame to its duplicates."""
    batch.frames, repeated = split_repeated(batch.frames, stored)
    batch.move_to_duplicates(repeated)


def format_decoder_versions(version: str, thing: Thing) -> str:
    """Return the versions of codec and TSL that decode frames of a device."""
    return f"{version}/{thing.tsl_version}"
