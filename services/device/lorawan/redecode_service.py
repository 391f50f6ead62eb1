"""Decoding frames again: operations, and `redecodes` in MongoDB.

Redecodings in MongoDB: `redecodes`, `{_id: {tenant, model}, …}`, the last of each product.

The fields are those of `Job`, `at`, when it ended, and `turn`, when it last had one (ms).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libs.common.clock import from_ms, now_ms
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.store.mongo import Database, Document, DuplicateKey
from services.device.lorawan.schemas import SHOWN, Difference, Redecode, StartRedecode
from services.device.telemetry.partitions import history_key
from services.device.things.device_queries import DeviceLists
from services.device.things.errors import codec_not_found
from services.device.things.product_store import ProductStore, identity_of

REDECODES = "redecodes"
KEPT = 30
"""Days for which one is known that has ended."""


class Job(Redecode, kw_only=True):
    """A redecoding that is under way."""

    identity: dict[str, str] = msgspec.field(name="_id")
    devices: list[int] | None = None
    """None is all of the product."""
    start: int = 0
    end: int
    after: int = 0
    """The last device that is through."""
    under: list[int] = msgspec.field(default_factory=list)
    """Devices whose frames are being read, until what is made of history is made anew."""
    lost: list[int] = msgspec.field(default_factory=list)
    """Those that were left so, in this redecoding or one before."""
    rest: dict[str, bytes] = msgspec.field(default_factory=dict)
    """The keys after which it goes on with some of those, by device."""
    second: bool = False
    """Whether all are gone through once more, for what came meanwhile."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.identity["tenant"]

    @property
    def model(self) -> str:
        """Of which product."""
        return self.identity["model"]

    def rest_of(self, device: int) -> bytes:
        """The key after which it goes on with a device."""
        return self.rest.get(str(device)) or history_key(device, self.start, 0)


@dataclass
class Reread:
    """What became of the frames of a device."""

    read: int = 0
    changed: int = 0
    told: int = 0
    shown: list[Difference] = field(default_factory=list)
    times: set[int] = field(default_factory=set)
    """When the changed ones were received, ms."""
    names: set[str] = field(default_factory=set)
    """Properties that history has otherwise."""
    rest: bytes = b""
    """The key after which it is to go on."""
    through: bool = False


class RedecodeStore:
    """Reads and writes redecodings."""

    def __init__(self, database: Database) -> None:
        self._jobs = database[REDECODES]

    async def forget_values(self, tenant: str, model: str, device_ids: Sequence[int]) -> None:
        """Remove the differences of devices from the last redecoding of a product."""
        await self._jobs.update_one(
            {"_id": identity_of(tenant, model)},
            {"$pull": {"differences": {"device": {"$in": list(device_ids)}}}},
        )

    async def begin(self, job: Job) -> bool:
        """Write a new one in the place of the last; False while that is running."""
        query = {"_id": job.identity, "state": {"$ne": "RUNNING"}}
        lost = {"$setUnion": [{"$ifNull": ["$lost", []]}, {"$ifNull": ["$under", []]}]}
        made = [{"$literal": msgspec.to_builtins(job)}, {"lost": lost}]
        try:
            await self._jobs.update_one(
                query, [{"$replaceWith": {"$mergeObjects": made}}], upsert=True
            )
        except DuplicateKey:
            return False
        return True

    async def find(self, tenant: str, model: str) -> Redecode | None:
        """The last one of a product."""
        found = await self._jobs.find_one({"_id": identity_of(tenant, model)})
        return msgspec.convert(found, Redecode) if found else None

    async def tenants(self, settled_ms: int) -> list[str]:
        """Return the tenants with redecodings that `next_job` returns."""
        return list(await self._jobs.distinct("_id.tenant", _due(settled_ms)))

    async def next_job(self, tenant: str, settled_ms: int) -> Job | None:
        """Return the running redecoding of a tenant whose last turn was first.

        The second pass of one starts `settled_ms` after the first.
        """
        query = {"_id.tenant": tenant, **_due(settled_ms)}
        return msgspec.convert(await self._jobs.find_one(query, sort=[("turn", 1)]), Job | None)

    async def stop(self, tenant: str, model: str) -> bool:
        """End the one of a product; False when none is running."""
        return await self._end({"_id": identity_of(tenant, model)}, "STOPPED")

    async def end(self, job: Job, state: str, **more: Any) -> None:
        """End one, unless it was stopped."""
        await self._end({"_id": job.identity, "started": job.started}, state, **more)

    async def _end(self, query: Document, state: str, **more: Any) -> bool:
        now = now_ms()
        change = {"$set": {"state": state, "ended": now, "at": from_ms(now), **more}}
        ended = await self._jobs.update_one({**query, "state": "RUNNING"}, change)
        return bool(ended.modified_count)

    async def enter(self, job: Job, devices: list[int]) -> bool:
        """Note that devices are begun or gone on with; False when it has been stopped."""
        left = [one for one in job.under if one not in devices]
        noted = {"under": devices, "turn": now_ms()}
        change = {"$set": noted, "$addToSet": {"lost": {"$each": left}}}
        return await self._note(job, change)

    async def went(self, job: Job, devices: list[int], found: list[Reread]) -> bool:
        """Note how far it is with devices; False when it has been stopped."""
        job.under = []
        through = all(one.through for one in found)
        rest = (
            {} if through else {str(at): one.rest for at, one in zip(devices, found, strict=True)}
        )
        shown = [difference for one in found for difference in one.shown]
        change = {
            "$set": {"rest": rest, "under": []} | ({"after": devices[-1]} if through else {}),
            "$pullAll": {"lost": [] if job.dry else devices},
            "$inc": {
                "read": sum(one.read for one in found),
                "changed": sum(one.changed for one in found),
                "told": sum(one.told for one in found),
                "done": len(devices) if through and not job.second else 0,
            },
            "$push": {
                "differences": {"$each": msgspec.to_builtins(shown)[:SHOWN], "$slice": SHOWN}
            },
        }
        return await self._note(job, change)

    async def _note(self, job: Job, change: Document) -> bool:
        query = {"_id": job.identity, "started": job.started, "state": "RUNNING"}
        return bool((await self._jobs.update_one(query, change)).matched_count)

    async def again(self, job: Job) -> None:
        """Go through all devices once more."""
        change = {"$set": {"second": True, "after": 0}}
        await self._jobs.update_one({"_id": job.identity, "started": job.started}, change)


def _due(settled_ms: int) -> Document:
    """The condition that a redecoding runs and does not wait for its second pass."""
    settled = {"started": {"$lte": now_ms() - settled_ms}}
    return {"state": "RUNNING", "$or": [{"second": {"$ne": True}}, settled]}


class RedecodeService:
    """One at a time of a product; a background job does the work."""

    def __init__(self, store: RedecodeStore, products: ProductStore, lists: DeviceLists) -> None:
        self._store = store
        self._products = products
        self._lists = lists

    async def begin(self, principal: Principal, model: str, body: StartRedecode) -> Redecode:
        """Begin to read frames again.

        Raises `NotFound` for a product without a codec, `Conflict` while one is under way.
        """
        tenant = principal.tenant
        product = await self._products.get(tenant, model)
        if product.codec_version is msgspec.UNSET:
            raise codec_not_found(model)
        if body.start is not None and body.end is not None and body.start > body.end:
            raise InvalidInput("must not be before start", field="end")
        devices = sorted(set(body.devices)) or None
        now = now_ms()
        job = Job(
            identity=dict(identity_of(tenant, model)),
            state="RUNNING",
            dry=body.dry,
            tell=body.tell,
            version=product.codec_version,
            total=await self._total(tenant, model) if devices is None else len(devices),
            started=now,
            devices=devices,
            start=body.start or 0,
            end=2**53 if body.end is None else body.end,
        )
        if not await self._store.begin(job):
            raise Conflict(f"frames of {model} are being read again", field="model")
        return await self.get(principal, model)

    async def get(self, principal: Principal, model: str) -> Redecode:
        """How far the last one is; raise `NotFound` when there is none, or no such product."""
        found = await self.last(principal, model)
        if found is None:
            raise NotFound(f"frames of {model} were never read again", field="model")
        return found

    async def last(self, principal: Principal, model: str) -> Redecode | None:
        """The same, None when there is none; raise `NotFound` when there is no such product."""
        await self._products.get(principal.tenant, model)
        return await self._store.find(principal.tenant, model)

    async def stop(self, principal: Principal, model: str) -> Redecode:
        """End it; devices that are through stay as they are."""
        await self._store.stop(principal.tenant, model)
        return await self.get(principal, model)

    async def _total(self, tenant: str, model: str) -> int:
        counted = await self._lists.counted_models(tenant)
        return sum(one.devices for one in counted if one.model.model == model)
