"""The own things of integrations (`things`), one for each tenant, made when first needed.

Beside what `services.device.entities.things.of_thing` names a document has `tsl`, the JSON of
the normalised TSL, and `hash`, that of its content.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ReturnDocument

from libs.common.contracts.integrations import Manifest
from libs.common.errors import UpstreamFailed
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, DuplicateKey, present
from libs.common.tsl import TslDocument, TslInvalid
from services.device.entities.members import marks_of, members_of
from services.device.entities.registry import MemberRegistry
from services.device.entities.things import tsl_fields


class IntegrationThings:
    """Makes the things of integrations, and keeps them in step with their manifests."""

    def __init__(self, database: Database, ids: IdAllocator) -> None:
        self._things = database["things"]
        self._registry = MemberRegistry(database)
        self._ids = ids

    async def ensure(self, tenant: str, manifest: Manifest) -> dict[str, Any]:
        """The document of the integration's thing in a tenant, with its current TSL."""
        document = tsl_of(manifest)
        fields = tsl_fields(document)
        key = {"tenant": tenant, "integration": manifest.id, "identifier": ""}
        known: dict[str, Any] | None = await self._things.find_one(key)
        if known is not None and known.get("hash") == fields["hash"]:
            return known
        numbers = await self._registry.numbers({"integration": manifest.id}, marks_of(document))
        members = members_of(document, numbers).members
        now = datetime.now(UTC)
        fields |= {"members": msgspec.to_builtins(members), "updatedAt": now}
        try:
            return await self._write(key, fields, now)
        except DuplicateKey:  # another process made it this moment
            return await self._write(key, fields, now)

    async def _write(
        self, key: dict[str, Any], fields: dict[str, Any], now: datetime
    ) -> dict[str, Any]:
        written = await self._things.find_one_and_update(
            key,
            {"$set": fields, "$setOnInsert": {"_id": await self._ids.take(), "createdAt": now}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return present(written)


def tsl_of(manifest: Manifest) -> TslDocument:
    """The manifest's TSL; `management` takes none that is broken."""
    try:
        return manifest.document()
    except TslInvalid as error:
        raise UpstreamFailed(f"the TSL of integration {manifest.id} is broken") from error
