"""The own things of integrations (`things`), one for each tenant, made when first needed.

Beside what `services.device.members.entity.of_thing` names a document has `tsl`, the JSON of
the normalised TSL, and `hash`, that of its content.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from libs.common.contracts.integrations import Manifest
from libs.common.errors import Unavailable, UpstreamFailed
from libs.common.integrations.client import Integrations, tsl_of
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, DuplicateKey
from services.device.members.entity import tsl_fields
from services.device.members.members import marks_of, members_of
from services.device.things.specifications import MemberRegistry
from services.device.things.thing_store import OwnThings

log = logging.getLogger(__name__)

KEPT = 10_000
"""Most tenants of which it is known what there is."""


@dataclass(frozen=True)
class IntegrationThings:
    """Makes the things of integrations, and keeps them in step with their manifests.

    One per process; what `complete` made with a manifest it does not look at again.
    """

    integrations: Integrations
    own: OwnThings
    registry: MemberRegistry
    ids: IdAllocator
    _made: OrderedDict[str, dict[str, Manifest]] = field(default_factory=OrderedDict, init=False)

    async def complete(self, tenant: str, integrations: Iterable[str] = ()) -> None:
        """Make what is missing in a tenant, surely the things of `integrations`.

        Without `management` what there is suffices.
        """
        try:
            found = await self.integrations.expecting(integrations)
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
        known = await self.own.find_one(key)
        if known is not None and known.get("hash") == fields["hash"]:
            return known
        numbers = await self.registry.numbers({"integration": manifest.id}, marks_of(document))
        members = members_of(document, numbers).members
        fields |= {"members": msgspec.to_builtins(members), "updatedAt": datetime.now(UTC)}
        try:
            return await self._put(key, fields)
        except DuplicateKey:  # another process made it this moment
            return await self._put(key, fields)

    async def _put(self, key: Document, fields: Document) -> Document:
        first = {"_id": await self.ids.take(), "createdAt": fields["updatedAt"]}
        return await self.own.put(key, fields, first)
