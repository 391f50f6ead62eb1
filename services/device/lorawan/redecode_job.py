"""Runs redecodings, in one replica: tenants take turns, and so do the products of each.

A device that is through is noted, and one that is begun again changes nothing more. All are gone
through twice: what was read by the codec before while a product got its own, is found then.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from libs.common.clock import now_ms
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import Collection, Document, StoreError
from services.device.lorawan.codec_cache import KnownCodec, KnownCodecs
from services.device.lorawan.redecode_service import Job, RedecodeStore, Reread
from services.device.lorawan.redecoder import Rereader
from services.device.lorawan.schemas import MOST_TOLD
from services.device.telemetry.device_facts import Facts
from services.device.telemetry.folded_values import Reported, Rewritten
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import (
    KEY,
    Partitions,
    collection_name,
    keys_between,
    partition_of,
)
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

log = logging.getLogger(__name__)

WORKERS = 4
"""Tenants whose frames are decoded again at a time."""
PERIOD = 0.5
"""Seconds until a new one is noticed, or it is looked whether one has settled."""
SETTLED_MS = 15_000
"""After which ingest reads with the new codec, and has stored what it read before."""
DEVICES = 192
"""Devices that are looked up together."""
AT_ONCE, GROUP = 32, 8
"""Devices whose frames are read at the same time, and whose are written together."""
ROWS = 1000
"""Records of history that are read together."""
TURN = 0.5
"""Seconds of a turn, besides the frames that are being read. Then others have theirs."""
CHANGED = "the codec was changed meanwhile"
TOLD = f"{MOST_TOLD} reports were said again, and no more are: take fewer devices, or less time"


@dataclass(frozen=True, kw_only=True)
class RedecodeWorker:
    """Reads the frames of products again."""

    store: RedecodeStore
    rereader: Rereader
    codecs: KnownCodecs
    devices: DeviceStore
    things: ThingDirectory
    latest: LatestValues
    facts: Facts
    partitions: Partitions
    settled_ms: int = SETTLED_MS

    async def run(self) -> None:
        """Work for ever."""
        tenants = partial(self.store.tenants, self.settled_ms)
        await take_turns("redecode", WORKERS, tenants, self.steps, PERIOD)

    async def steps(self, tenant: str) -> Steps:
        """Work on the redecodings of a tenant, a turn for each product."""
        while job := await self.store.next_job(tenant, self.settled_ms):
            try:
                await self.turn(job)
            except StoreError:
                raise
            except Exception as error:
                log.exception("redecoding of %s fails", job.model)
                await self.store.end(job, "FAILED", fault=f"{type(error).__name__}: {error}"[:500])
            yield

    async def turn(self, job: Job) -> None:
        """Go on with one, for some devices."""
        known = (await self.codecs.of([(job.tenant, job.model)]))[job.tenant, job.model]
        if known.version != job.version:
            await self.store.end(job, "FAILED", fault=CHANGED)
            return
        until = time.monotonic() + TURN
        ids = await self._next(job)
        for first in range(0, len(ids), AT_ONCE):
            if not await self._devices(job, known, ids[first : first + AT_ONCE], until):
                break
        if not ids:
            await self._through(job)

    async def _devices(self, job: Job, known: KnownCodec, ids: list[int], until: float) -> bool:
        """Read frames of some devices; False when there is no time left for others."""
        lost = {*job.under, *job.lost}
        if not await self.store.enter(job, ids):
            return False
        things = await self._things(job, ids)
        some = list(things.values())
        groups = (some[first : first + GROUP] for first in range(0, len(some), GROUP))
        reread = ChainMap(
            *await asyncio.gather(
                *(self._group(job, known, group, lost, until) for group in groups)
            )
        )
        gone = Reread(through=True)
        found = [reread.get(one, gone) for one in ids]
        job.differences += [difference for one in found for difference in one.shown]
        job.told += sum(one.told for one in found)
        went = await self.store.went(job, ids, found)
        if job.told >= MOST_TOLD:
            await self.store.end(job, "FAILED", fault=TOLD)
            return False
        return went and time.monotonic() <= until

    async def _things(self, job: Job, ids: list[int]) -> dict[int, Thing]:
        """Those of `ids` that are of the product still."""
        devices = await self.devices.find_all(job.tenant, ids)
        some = await self.things.things([one for one in devices if one.model == job.model])
        return {thing.id: thing for thing in some}

    async def _next(self, job: Job) -> list[int]:
        if job.devices is not None:
            return [one for one in job.devices if one > job.after][:DEVICES]
        return await self.devices.lists.of_product(job.tenant, job.model, job.after, DEVICES)

    async def _through(self, job: Job) -> None:
        if job.dry or job.second:
            await self.store.end(job, "DONE")
        else:
            await self.store.again(job)

    async def _group(
        self,
        job: Job,
        known: KnownCodec,
        things: Sequence[Thing],
        lost: set[int],
        until: float,
    ) -> dict[int, Reread]:
        """Read frames of some devices, and make of them what is made of history."""
        found = await self.rereader.reread(job, known, things, until)
        if not job.dry:
            await self._renew({thing.id: thing for thing in things}, found, lost)
        return found

    async def _renew(
        self, things: dict[int, Thing], found: dict[int, Reread], lost: set[int]
    ) -> None:
        """Make latest values and facts of devices those that history gives now.

        What was read of those that are `lost` before is not known: its process has ended.
        """
        for one in found.keys() & lost:
            entries = (await self.latest.entries([one])).get(one, {})
            known_times = {entry["t"] for entry in entries.values()}
            found[one].times |= await self.rereader.frames.heard(one, known_times)
        times = {one: reread.times for one, reread in found.items() if reread.times or one in lost}
        if not times:
            return
        weeks = await self.partitions.collections()
        await self.latest.rebuild(
            {
                one: Rewritten(
                    partial(self._reports, things[one], weeks),
                    rewritten,
                    None if one in lost else found[one].names,
                )
                for one, rewritten in times.items()
            }
        )
        await self.facts.renew({one: things[one] for one in times}, times)

    async def _reports(
        self, thing: Thing, weeks: list[Collection], newest: int | None
    ) -> AsyncIterator[list[Reported]]:
        """What history has of a device while it is its owner's, the oldest first, in parts.

        The `newest` ones are one part.
        """
        first = max(thing.owned_since, now_ms() - self.rereader.retention_ms)
        bounds = keys_between(thing.id, first)
        oldest = collection_name(partition_of(first))
        kept = [week for week in weeks if week.name >= oldest]
        if newest is not None:
            last: list[Document] = []
            for week in reversed(kept):
                rows = week.find({"_id": bounds}, sort=[("_id", -1)], limit=newest - len(last))
                last += await rows.to_list(None)
                if len(last) == newest:
                    break
            yield _reported(reversed(last))
            return
        for week in kept:
            rows = week.find({"_id": bounds}, sort=[("_id", 1)])
            while some := await rows.to_list(ROWS):
                yield _reported(some)


def _reported(rows: Iterable[Document]) -> list[Reported]:
    """Rows of history as reports."""
    keys = ((KEY.unpack(row["_id"]), row["p"]) for row in rows)
    return [(device, ts, properties) for (device, ts, _), properties in keys]
