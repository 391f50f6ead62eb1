"""The own things of integrations (`things`), one for each tenant, made when first needed.

Beside what `services.device.members.entity.of_thing` names a document has `tsl`, the JSON of
the normalised TSL, and `hash`, that of its content.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from pymongo import ReturnDocument

from libs.common.contracts.integrations import Manifest
from libs.common.errors import Unavailable, UpstreamFailed
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Database, Document, DuplicateKey, present
from services.device.members.entity import tsl_fields
from services.device.members.member import marks_of, members_of
from services.device.members.registry import MemberRegistry
from services.device.things.integrations import Integrations, tsl_of

log = logging.getLogger(__name__)

KEPT = 10_000
"""Most tenants of which it is known what there is."""


class ThingMaker:
    """Makes the things of integrations, and keeps them in step with their manifests.

    One per process; what `complete` made with a manifest it does not look at again.
    """

    def __init__(self, integrations: Integrations, database: Database, ids: IdAllocator) -> None:
        self._integrations = integrations
        self._things = database["things"]
        self._registry = MemberRegistry(database)
        self._ids = ids
        self._made: OrderedDict[str, dict[str, Manifest]] = OrderedDict()

    async def complete(self, tenant: str, integrations: Iterable[str] = ()) -> None:
        """Make what is missing in a tenant, surely the things of `integrations`.

        Without `management` what there is suffices.
        """
        try:
            found = await self._integrations.expecting(integrations)
        except (Unavailable, UpstreamFailed) as error:
            log.warning("entities of new integrations may be missing: %s", error)
            return
        made = self._made.setdefault(tenant, {})
        self._made.move_to_end(tenant)
        if len(self._made) > KEPT:
            self._made.popitem(last=False)
        there = [one.manifest for one in found.values() if one.alive and not one.manifest.hidden]
        new = [manifest for manifest in there if made.get(manifest.id) != manifest]
        await asyncio.gather(*(self._make(tenant, manifest, made) for manifest in new))

    async def _make(self, tenant: str, manifest: Manifest, made: dict[str, Manifest]) -> None:
        try:
            await self.ensure(tenant, manifest)
        except UpstreamFailed as error:
            log.warning("integration %s has no entities: %s", manifest.id, error)
        made[manifest.id] = manifest

    async def ensure(self, tenant: str, manifest: Manifest) -> Document:
        """The document of the integration's thing in a tenant, with its current TSL."""
        document = tsl_of(manifest)
        fields = tsl_fields(document)
        key = {"tenant": tenant, "integration": manifest.id, "identifier": ""}
        known = await self._things.find_one(key)
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

    async def _write(self, key: Document, fields: Document, now: datetime) -> Document:
        written = await self._things.find_one_and_update(
            key,
            {"$set": fields, "$setOnInsert": {"_id": await self._ids.take(), "createdAt": now}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return present(written)
