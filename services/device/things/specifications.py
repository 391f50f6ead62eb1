"""Thing specifications (TSL) of products, locks on their use, and member numbers.

`tsls`: `{_id: {tenant, model, version}, document, hash, conceals?, keysIgnored?}`. `document` is
the JSON of the normalised TSL and `hash` its SHA-256 in hex. `conceals` records whether it has
write-only members. `keysIgnored` marks a document whose property keys were ignored on import.

`product_usage` prevents the deletion of a product, or a change of a TSL version, while a device is
being added. A transaction reads a snapshot, so "no device uses it" may be false at commit. Each
product has several slots: adding a device writes one of them, deletion writes all, and MongoDB lets
only one of two transactions that write a slot commit. With several slots, devices can be added
concurrently.

`members`: `{_id: owner, marks: [key, …]}`. The number of a member is the position of its key in the
list, from 1. The list only grows, so a number is never reused for another member.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from libs.common.errors import InvalidInput, Unavailable
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, Document, DuplicateKey, Session
from libs.common.things import GENERIC_MODEL, MAX_TSL_MEMBER_NUMBER
from libs.common.tsl import Tsl, TslDocument, compile_tsl, generic_tsl
from services.device.things.errors import unknown_model_error
from services.device.things.model import Device

TslComparison = Literal["NEW", "SAME", "KEYED", "CHANGED"]
TslKey = tuple[str, str, str]
"""Tenant, product and version."""

CACHE_SIZE = 2_000
"""Compiled TSLs in the cache."""
_document_decoder: msgspec.json.Decoder[TslDocument] = msgspec.json.Decoder(TslDocument)


@dataclass(frozen=True, slots=True)
class StoredTsl:
    """A TSL version: JSON of the normalised TSL and its SHA-256 in hex."""

    version: str
    document: bytes
    hash: str
    plain_hash: str = ""
    """The hash of the document with ids in place of property keys, which older platforms stored."""


class WriteOnlyTsl(NamedTuple):
    """A TSL version that has write-only members."""

    model: str
    version: str
    hash: str


class TslStore:
    """Reads and writes TSLs and caches compiled ones by content; one per process."""

    def __init__(self, database: Database) -> None:
        self._tsls = database["tsls"]
        self._compiled: LruCache[str, Tsl] = LruCache(CACHE_SIZE)

    def find_cached(self, content_hash: str) -> Tsl | None:
        """Return the TSL with this content hash if it is in the cache."""
        return self._compiled.get(content_hash)

    def compile(self, content_hash: str, document: bytes) -> Tsl:
        """Compile a TSL document and add it to the cache."""
        tsl = compile_tsl(_document_decoder.decode(document))
        self._compiled.put(content_hash, tsl)
        return tsl

    async def find_or_generic(
        self, tenant: str, model: str, version: str, content_hash: str | None = None
    ) -> Tsl:
        """Return the current TSL of a version, or the open TSL (`generic_tsl`) if none exists.

        With the `content_hash` of a cached TSL, no query is needed.
        """
        if content_hash and (cached := self._compiled.get(content_hash)) is not None:
            return cached
        return (await self.find_all_or_generic([(tenant, model, version)]))[tenant, model, version]

    async def find_all_or_generic(self, keys: Iterable[TslKey]) -> dict[TslKey, Tsl]:
        """Return the TSLs of versions by key, like `find_or_generic`."""
        tsls: dict[TslKey, Tsl] = {key: generic_tsl() for key in keys}
        version_ids = [_version_id(*key) for key in tsls if key[1] != GENERIC_MODEL]
        missing: list[Document] = []
        if version_ids:
            async for head in self._tsls.find({"_id": {"$in": version_ids}}, {"hash": 1}):
                cached = self._compiled.get(head["hash"])
                if cached is None:
                    missing.append(head["_id"])
                else:
                    tsls[_tsl_key(head)] = cached
        if missing:
            async for stored in self._tsls.find({"_id": {"$in": missing}}):
                cached = self._compiled.get(stored["hash"])
                tsls[_tsl_key(stored)] = cached or self.compile(stored["hash"], stored["document"])
        return tsls

    async def compare(
        self, tenant: str, model: str, tsl: StoredTsl, session: Session
    ) -> TslComparison:
        """Compare a document with the stored one of its version.

        `KEYED`: the documents differ only in property keys, which were ignored when the stored one
        was imported.
        """
        identity = _version_id(tenant, model, tsl.version)
        head = await self._tsls.find_one({"_id": identity}, {"document": 0}, session=session)
        if head is None:
            return "NEW"
        if head["hash"] == tsl.hash:
            return "SAME"
        only_keys_differ = head.get("keysIgnored") and head["hash"] == tsl.plain_hash
        return "KEYED" if only_keys_differ else "CHANGED"

    async def list_tenants_with_write_only(self) -> list[str]:
        """Return the tenants of TSLs that may have write-only members."""
        return list(await self._tsls.distinct("_id.tenant", {"conceals": {"$ne": False}}))

    async def list_with_write_only(self, tenant: str) -> list[WriteOnlyTsl]:
        """Return each TSL of the tenant that has write-only members.

        Stores in `conceals` whether a TSL has any.
        """
        concealing = []
        query = {"_id.tenant": tenant, "conceals": {"$ne": False}}
        async for stored in self._tsls.find(query, {"document": 0}):
            conceals = stored.get("conceals")
            key = _tsl_key(stored)
            if conceals is None:
                conceals = (await self.find_or_generic(*key)).conceals
                same = {"_id": stored["_id"], "hash": stored["hash"]}
                await self._tsls.update_one(same, {"$set": {"conceals": conceals}})
            if conceals:
                concealing.append(WriteOnlyTsl(*key[1:], str(stored["hash"])))
        return concealing

    async def put(self, tenant: str, model: str, tsl: StoredTsl, session: Session) -> None:
        """Write a version in the caller's transaction."""
        identity = _version_id(tenant, model, tsl.version)
        content = {"document": tsl.document, "hash": tsl.hash}
        await self._tsls.replace_one({"_id": identity}, content, upsert=True, session=session)

    async def delete(self, tenant: str, model: str, session: Session) -> None:
        """Delete all versions of a product in the caller's transaction."""
        await self._tsls.delete_many({"_id.tenant": tenant, "_id.model": model}, session=session)


def _version_id(tenant: str, model: str, version: str) -> Document:
    return {"tenant": tenant, "model": model, "version": version}


def _tsl_key(stored: Document) -> TslKey:
    identity = stored["_id"]
    return identity["tenant"], identity["model"], identity["version"]


LOCK_SLOTS = 16
"""Lock documents of a product. An added device writes one, so additions seldom conflict."""


class ProductLocks:
    """Locks of products: adding a device conflicts with deletion, but not with other additions."""

    def __init__(self, database: Database) -> None:
        self._slots = database["product_usage"]

    async def lock_for_devices(
        self, tenant: str, model: str, sn_keys: Iterable[str], session: Session
    ) -> bool:
        """Lock the product of new devices against deletion; False if it does not exist."""
        slots = {crc32(sn_key.encode()) % LOCK_SLOTS for sn_key in sn_keys}
        keys = [_slot_key(tenant, model, slot) for slot in slots]
        written = await self._slots.update_many(
            {"_id": {"$in": keys}}, {"$inc": {"ties": 1}}, session=session
        )
        return bool(written.matched_count == len(keys))

    async def lock_products_of_devices(self, devices: Iterable[Device], session: Session) -> None:
        """Lock the products of devices against deletion; raise `InvalidInput` if one is missing."""
        models: dict[tuple[str, str], list[str]] = {}
        for device in devices:
            if device.model != GENERIC_MODEL:
                models.setdefault((device.tenant, device.model), []).append(device.sn_key)
        for (tenant, model), keys in models.items():
            if not await self.lock_for_devices(tenant, model, keys, session):
                raise unknown_model_error(model)

    async def lock_exclusively(self, tenant: str, model: str, session: Session) -> None:
        """Lock against every concurrent `lock_for_devices` of the product; create missing slots."""
        for slot in range(LOCK_SLOTS):
            await self._slots.update_one(
                {"_id": _slot_key(tenant, model, slot)},
                {"$inc": {"seals": 1}},
                upsert=True,
                session=session,
            )

    async def delete(self, tenant: str, model: str, session: Session) -> None:
        """Delete the slots of a deleted product."""
        keys = [_slot_key(tenant, model, slot) for slot in range(LOCK_SLOTS)]
        await self._slots.delete_many({"_id": {"$in": keys}}, session=session)


def _slot_key(tenant: str, model: str, slot: int) -> dict[str, str | int]:
    return {"tenant": tenant, "model": model, "slot": slot}


_MAX_ATTEMPTS = 10

NumberOwner = dict[str, str]
"""`{tenant, model}` of a product, or `{integration}`."""


class TooManyMembers(InvalidInput):
    """400: the owner has had more members than numbers exist."""

    def __init__(self) -> None:
        super().__init__(
            f"has more than {MAX_TSL_MEMBER_NUMBER} different members in all versions together",
            field="tsl",
        )


class MemberRegistry:
    """Assigns numbers to members."""

    def __init__(self, database: Database) -> None:
        self._members = database["members"]

    async def assign_numbers(
        self, owner: NumberOwner, keys: Sequence[str], session: Session | None = None
    ) -> dict[str, int]:
        """Assign numbers to new keys; return the numbers of all keys that the owner has had.

        With `session` the new numbers become visible with that transaction. When two calls add
        numbers for one owner, one of them runs again. Raises `TooManyMembers`, or `Unavailable`
        after `_MAX_ATTEMPTS` attempts. With `session`, `DuplicateKey` is raised too.
        """
        for _ in range(_MAX_ATTEMPTS):
            document = await self._members.find_one({"_id": owner}, session=session)
            stored_keys: list[str] = document["marks"] if document else []
            missing = list(dict.fromkeys(key for key in keys if key not in set(stored_keys)))
            if not missing:
                break
            try:
                if await self._append(owner, stored_keys, missing, session):
                    stored_keys = [*stored_keys, *missing]
                    break
            except DuplicateKey:
                if session is not None:
                    raise
        else:
            raise Unavailable("other requests add members to the same owner")
        return {key: number for number, key in enumerate(stored_keys, 1)}

    async def _append(
        self,
        owner: NumberOwner,
        stored_keys: list[str],
        missing: list[str],
        session: Session | None,
    ) -> bool:
        if len(stored_keys) + len(missing) > MAX_TSL_MEMBER_NUMBER:
            raise TooManyMembers
        written = await self._members.update_one(
            {"_id": owner, "marks": {"$size": len(stored_keys)}},
            {"$push": {"marks": {"$each": missing}}},
            upsert=not stored_keys,
            session=session,
        )
        return bool(written.matched_count or written.upserted_id)

    async def delete(self, owner: NumberOwner, session: Session | None = None) -> None:
        """Delete the numbers of an owner that has no things any more."""
        await self._members.delete_one({"_id": owner}, session=session)


def product_number_owner(tenant: str, model: str) -> NumberOwner:
    """Return a product as the owner of member numbers."""
    return {"tenant": tenant, "model": model}
