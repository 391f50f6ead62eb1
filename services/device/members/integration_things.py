"""Things of integrations (`things`), one per tenant and integration, created when needed.

Besides the fields in `services.device.members.entity.thing_from_document` a document has `tsl`, the
JSON of the normalised TSL, and `hash`, its SHA-256.
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
from libs.common.integrations.client import Integrations, parse_manifest_tsl
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Document, DuplicateKey
from services.device.members.entity import stored_tsl_fields
from services.device.members.members import build_members, number_keys
from services.device.things.specifications import MemberRegistry
from services.device.things.thing_store import ThingStore

log = logging.getLogger(__name__)

MAX_CACHED_TENANTS = 10_000
"""Maximum tenants whose applied manifests are cached."""


@dataclass(frozen=True)
class IntegrationThings:
    """Creates the things of integrations and updates them to their manifests.

    One per process; it caches the manifests that `ensure_for_tenant` applied.
    """

    integrations: Integrations
    thing_store: ThingStore
    registry: MemberRegistry
    ids: IdAllocator
    _applied: OrderedDict[str, dict[str, Manifest]] = field(default_factory=OrderedDict, init=False)

    async def ensure_for_tenant(self, tenant: str, expected: Iterable[str] = ()) -> None:
        """Create or update the tenant's thing of each running integration that is not hidden.

        The list of integrations is read again if one of `expected` is missing or stopped. If
        `management` is unavailable, the things stay as they are. An integration with an invalid
        TSL gets no thing.
        """
        try:
            known_integrations = await self.integrations.list_expected(expected)
        except (Unavailable, UpstreamFailed) as error:
            log.warning("entities of new integrations may be missing: %s", error)
            return
        applied = self._applied.setdefault(tenant, {})
        self._applied.move_to_end(tenant)
        if len(self._applied) > MAX_CACHED_TENANTS:
            self._applied.popitem(last=False)
        manifests = [entry.manifest for entry in known_integrations.values() if entry.alive]
        new = [
            manifest
            for manifest in manifests
            if not manifest.hidden and applied.get(manifest.id) != manifest
        ]
        await asyncio.gather(*(self._apply_manifest(tenant, manifest, applied) for manifest in new))

    async def _apply_manifest(
        self, tenant: str, manifest: Manifest, applied: dict[str, Manifest]
    ) -> None:
        try:
            await self.ensure(tenant, manifest)
        except UpstreamFailed as error:
            log.warning("integration %s gets no entities: %s", manifest.id, error)
        applied[manifest.id] = manifest

    async def ensure(self, tenant: str, manifest: Manifest) -> Document:
        """Return the document of an integration's thing, updated to its manifest."""
        document = parse_manifest_tsl(manifest)
        fields = stored_tsl_fields(document)
        key = {"tenant": tenant, "integration": manifest.id, "identifier": ""}
        known = await self.thing_store.find_one(key)
        if known is not None and known.get("hash") == fields["hash"]:
            return known
        numbers = await self.registry.assign_numbers(
            {"integration": manifest.id}, number_keys(document)
        )
        members = build_members(document, numbers).members
        fields |= {"members": msgspec.to_builtins(members), "updatedAt": datetime.now(UTC)}
        try:
            return await self._put(key, fields)
        except DuplicateKey:  # another process created it at the same time
            return await self._put(key, fields)

    async def _put(self, key: Document, fields: Document) -> Document:
        first = {"_id": await self.ids.allocate(), "createdAt": fields["updatedAt"]}
        return await self.thing_store.upsert(key, fields, first)
