"""Specifications of products, ties of devices to them, and numbers of members, in MongoDB.

`tsls`: `{_id: {tenant, model, version}, document, hash, conceals?, keysIgnored?}`, the document
being the JSON of the normalised TSL and the hash its SHA-256 in hex. `conceals` tells if it has
write-only members, once that is known. `keysIgnored` marks a document whose property keys were
ignored when it was imported.

Keeps a product, or a version's content, from going while a device is being tied to it.

A transaction sees a snapshot, so "no device uses it" may be untrue by the time of its
commit. Each product has a few slots: tying a device writes one of them, ending what the
device relies on writes all, and two writers of one slot cannot both commit. Several slots,
so that many devices can be added at a time.

Who keeps member numbers: `members`, `{_id: owner, marks: [mark, …]}`.

A mark's number is its place in the list, from 1. The list only grows, so a number is never
given twice, whatever versions a product has had.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

import msgspec

from libs.common.errors import InvalidInput
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document, DuplicateKey, Session
from libs.common.things import GENERIC, LAST_DECLARED
from libs.common.tsl import Tsl, TslDocument, compile_tsl, generic_tsl
from services.device.things.errors import unknown_model
from services.device.things.model import Device

Relation = Literal["NEW", "SAME", "KEYED", "CHANGED"]
TslKey = tuple[str, str, str]
"""Tenant, product and version."""

KEPT = 2_000
"""Compiled TSLs that are kept."""
_DOCUMENT: msgspec.json.Decoder[TslDocument] = msgspec.json.Decoder(TslDocument)


@dataclass(frozen=True, slots=True)
class StoredTsl:
    """A version's document: JSON of the normalised TSL, and its SHA-256 in hex."""

    version: str
    document: bytes
    hash: str
    plain_hash: str = ""
    """That of the document with ids for property keys, as versions without these stored it."""


class Tsls:
    """Reads and writes TSLs; one per process. Each content is compiled once."""

    def __init__(self, database: Database) -> None:
        self._tsls = database["tsls"]
        self._compiled: LruCache[str, Tsl] = LruCache(KEPT)

    def known(self, content_hash: str) -> Tsl | None:
        """The TSL of a content, when it is compiled."""
        return self._compiled.get(content_hash)

    def compiled(self, content_hash: str, document: bytes) -> Tsl:
        """The TSL of a content, which is kept."""
        tsl = compile_tsl(_DOCUMENT.decode(document))
        self._compiled.put(content_hash, tsl)
        return tsl

    async def find(self, tenant: str, model: str, version: str) -> Tsl:
        """The TSL of a version as it is now; the open one stands in for one that is gone."""
        return (await self.find_all([(tenant, model, version)]))[tenant, model, version]

    async def find_all(self, keys: Iterable[TslKey]) -> dict[TslKey, Tsl]:
        """The TSLs of versions: one look at their hashes, one more for what is not compiled."""
        found: dict[TslKey, Tsl] = {key: generic_tsl() for key in keys}
        wanted = [_identity(*key) for key in found if key[1] != GENERIC]
        missing: list[Document] = []
        if wanted:
            async for head in self._tsls.find({"_id": {"$in": wanted}}, {"hash": 1}):
                known = self._compiled.get(head["hash"])
                if known is None:
                    missing.append(head["_id"])
                else:
                    found[_key(head)] = known
        if missing:
            async for stored in self._tsls.find({"_id": {"$in": missing}}):
                known = self._compiled.get(stored["hash"])
                found[_key(stored)] = known or self.compiled(stored["hash"], stored["document"])
        return found

    async def relation(self, tenant: str, model: str, tsl: StoredTsl, session: Session) -> Relation:
        """Return how a document relates to that which is stored of its version.

        `KEYED` is one that differs by nothing but the property keys, which were ignored when the
        stored one was imported.
        """
        identity = _identity(tenant, model, tsl.version)
        head = await self._tsls.find_one({"_id": identity}, {"document": 0}, session=session)
        if head is None:
            return "NEW"
        if head["hash"] == tsl.hash:
            return "SAME"
        ignored = head.get("keysIgnored") and head["hash"] == tsl.plain_hash
        return "KEYED" if ignored else "CHANGED"

    async def concealing_tenants(self) -> list[str]:
        """Return the tenants of TSLs that may have write-only members."""
        return list(await self._tsls.distinct("_id.tenant", {"conceals": {"$ne": False}}))

    async def concealing(self, tenant: str) -> list[tuple[str, str, str]]:
        """Return product, version and hash of each TSL that has write-only members.

        Whether one has any is noted with it.
        """
        found = []
        query = {"_id.tenant": tenant, "conceals": {"$ne": False}}
        async for stored in self._tsls.find(query, {"document": 0}):
            conceals = stored.get("conceals")
            key = _key(stored)
            if conceals is None:
                conceals = (await self.find(*key)).conceals
                same = {"_id": stored["_id"], "hash": stored["hash"]}
                await self._tsls.update_one(same, {"$set": {"conceals": conceals}})
            if conceals:
                found.append((*key[1:], str(stored["hash"])))
        return found

    async def put(self, tenant: str, model: str, tsl: StoredTsl, session: Session) -> None:
        """Write a version in the caller's transaction."""
        identity = _identity(tenant, model, tsl.version)
        content = {"document": tsl.document, "hash": tsl.hash}
        await self._tsls.replace_one({"_id": identity}, content, upsert=True, session=session)

    async def delete(self, tenant: str, model: str, session: Session) -> None:
        """Delete all versions of a product in the caller's transaction."""
        await self._tsls.delete_many({"_id.tenant": tenant, "_id.model": model}, session=session)


def _identity(tenant: str, model: str, version: str) -> Document:
    return {"tenant": tenant, "model": model, "version": version}


def _key(stored: Document) -> TslKey:
    identity = stored["_id"]
    return identity["tenant"], identity["model"], identity["version"]


SLOTS = 16


class ProductUsage:
    """The slots of all products."""

    def __init__(self, database: Database) -> None:
        self._slots = database["product_usage"]

    async def tie(self, tenant: str, model: str, devices: Iterable[str], session: Session) -> bool:
        """Tie devices (their SN keys) to the product; False when the product is gone."""
        slots = {crc32(device.encode()) % SLOTS for device in devices}
        keys = [_slot_key(tenant, model, slot) for slot in slots]
        written = await self._slots.update_many(
            {"_id": {"$in": keys}}, {"$inc": {"ties": 1}}, session=session
        )
        return bool(written.matched_count == len(keys))

    async def tie_devices(self, devices: Iterable[Device], session: Session) -> None:
        """Tie devices to their products; raise `InvalidInput` when one of these is gone."""
        models: dict[tuple[str, str], list[str]] = {}
        for device in devices:
            if device.model != GENERIC:
                models.setdefault((device.tenant, device.model), []).append(device.sn_key)
        for (tenant, model), keys in models.items():
            if not await self.tie(tenant, model, keys, session):
                raise unknown_model(model)

    async def seal(self, tenant: str, model: str, session: Session) -> None:
        """Let nobody tie a device while this transaction runs; makes slots that are missing."""
        for slot in range(SLOTS):
            await self._slots.update_one(
                {"_id": _slot_key(tenant, model, slot)},
                {"$inc": {"seals": 1}},
                upsert=True,
                session=session,
            )

    async def end(self, tenant: str, model: str, session: Session) -> None:
        """Take the slots away with the product."""
        keys = [_slot_key(tenant, model, slot) for slot in range(SLOTS)]
        await self._slots.delete_many({"_id": {"$in": keys}}, session=session)


def _slot_key(tenant: str, model: str, slot: int) -> dict[str, str | int]:
    return {"tenant": tenant, "model": model, "slot": slot}


_ATTEMPTS = 10

Owner = dict[str, str]
"""`{tenant, model}` of a product, or `{integration}`."""


class TooManyMembers(InvalidInput):
    """400: the owner has had more members than there are numbers."""

    def __init__(self) -> None:
        super().__init__(
            f"has had more than {LAST_DECLARED} different members over all its versions",
            field="tsl",
        )


class MemberRegistry:
    """Gives numbers to members."""

    def __init__(self, database: Database) -> None:
        self._members = database["members"]

    async def numbers(
        self, owner: Owner, marks: Sequence[str], session: Session | None = None
    ) -> dict[str, int]:
        """The numbers of `marks`; those that have none get one. Raises `TooManyMembers`.

        In a transaction (`session`) the number is there when the transaction is; whoever
        numbers the same owner meanwhile makes one of the two run again.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            found = await self._members.find_one({"_id": owner}, session=session)
            known: list[str] = found["marks"] if found else []
            missing = list(dict.fromkeys(mark for mark in marks if mark not in set(known)))
            if not missing:
                break
            try:
                if await self._append(owner, known, missing, session):
                    known = [*known, *missing]
                    break
            except DuplicateKey:
                if session is not None or attempt == _ATTEMPTS:
                    raise
        return {mark: at for at, mark in enumerate(known, 1)}

    async def _append(
        self, owner: Owner, known: list[str], missing: list[str], session: Session | None
    ) -> bool:
        if len(known) + len(missing) > LAST_DECLARED:
            raise TooManyMembers
        written = await self._members.update_one(
            {"_id": owner, "marks": {"$size": len(known)}},
            {"$push": {"marks": {"$each": missing}}},
            upsert=not known,
            session=session,
        )
        return bool(written.matched_count or written.upserted_id)

    async def forget(self, owner: Owner, session: Session | None = None) -> None:
        """The owner is gone, and no thing of it is left."""
        await self._members.delete_one({"_id": owner}, session=session)


def owner_of(tenant: str, model: str) -> Owner:
    """The owner that a product is."""
    return {"tenant": tenant, "model": model}
