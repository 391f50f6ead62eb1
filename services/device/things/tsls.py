"""TSLs of products by version (`tsls`), and all TSLs that are compiled, by their content.

`tsls`: `{_id: {tenant, model, version}, document, hash, conceals?, keysIgnored?}`, the document
being the JSON of the normalised TSL and the hash its SHA-256 in hex. `conceals` tells if it has
write-only members, once that is known. `keysIgnored` marks a document whose property keys were
ignored when it was imported.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import msgspec

from libs.common.recent import Recent
from libs.common.store.mongo import Database, Document, Session
from libs.common.things import GENERIC
from libs.common.tsl import Tsl, TslDocument, compile_tsl, generic_tsl

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
        self._compiled: Recent[str, Tsl] = Recent(KEPT)

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
