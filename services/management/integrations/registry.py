"""Announced integrations, and their manifests in MongoDB.

`integrations`: `{_id, manifest (JSON), announcedAt}`; ages are computed with MongoDB's clock.
"""

from collections.abc import Sequence

import msgspec
from pymongo import UpdateOne

from libs.common.contracts.integrations import (
    LEASE,
    Acknowledged,
    GetIntegrations,
    Integration,
    KnownIntegrations,
    Manifest,
)
from libs.common.errors import Forbidden, InvalidInput
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database
from libs.common.store.redis import RequestBatcher
from libs.common.tsl import TslDocument, TslInvalid

KNOWN = 1000
"""Manifests that are kept in memory."""
RENEWAL_DELAY = 0.5
"""Seconds for which a repeated announcement waits for others, which are stored together."""


def parse_tsl(manifest: Manifest) -> TslDocument:
    """Return the manifest's TSL; raise `InvalidInput` with every fault."""
    try:
        return manifest.document()
    except TslInvalid as error:
        raise InvalidInput(f"tsl: {error}", field="tsl") from error


def _encode(manifest: Manifest) -> str:
    return msgspec.json.encode(manifest).decode()


class IntegrationStore:
    """The collection `integrations`, shared by all replicas."""

    def __init__(self, database: Database) -> None:
        self._integrations = database["integrations"]

    async def save(self, manifest: Manifest) -> None:
        """Store a manifest and the current time."""
        content = {"manifest": {"$literal": _encode(manifest)}, "announcedAt": "$$NOW"}
        await self._integrations.update_one(
            {"_id": manifest.id},
            [{"$set": content}],
            upsert=True,
        )

    async def renew(self, manifests: Sequence[Manifest]) -> list[None]:
        """Store the current time for stored manifests; save all if one is not stored."""
        renewals = [
            UpdateOne(
                {"_id": one.id, "manifest": _encode(one)}, [{"$set": {"announcedAt": "$$NOW"}}]
            )
            for one in manifests
        ]
        found = await self._integrations.bulk_write(renewals, ordered=False)
        for manifest in manifests if found.matched_count < len(manifests) else ():
            await self.save(manifest)
        return [None] * len(manifests)

    async def list_all(self) -> list[Integration]:
        """Return every announced integration by id, and whether it is running."""
        oldest = {"$subtract": ["$$NOW", int(LEASE * 1000)]}
        found = await self._integrations.aggregate(
            [{"$set": {"alive": {"$gt": ["$announcedAt", oldest]}}}, {"$sort": {"_id": 1}}]
        )
        return [
            Integration(
                manifest=msgspec.json.decode(document["manifest"], type=Manifest),
                alive=document["alive"],
            )
            async for document in found
        ]


class Registry:
    """Checks announcements, and lists integrations."""

    def __init__(self, store: IntegrationStore) -> None:
        self._store = store
        self._known: LruCache[str, Manifest] = LruCache(KNOWN)
        """The last valid manifest of each integration."""
        self._renewals = RequestBatcher(store.renew, RENEWAL_DELAY)

    async def announce(self, who: str, manifest: Manifest) -> Acknowledged:
        """Store the announcement of the integration `who`, to which the login belongs.

        Raises `Forbidden` for the manifest of another integration, and `InvalidInput` for an
        invalid TSL, or an add or delete service that the TSL lacks.
        """
        if manifest.id != who:
            raise Forbidden(f"{who} cannot announce {manifest.id}", field="id")
        if self._known.get(who) == manifest:
            await self._renewals.answer(manifest)
            return Acknowledged()
        services = {service.id: service.inputs for service in parse_tsl(manifest).services}
        for field in ("add_device_service", "delete_device_service"):
            service = getattr(manifest, field)
            if service is not None and service not in services:
                raise InvalidInput(f"the TSL has no service {service!r}", field=field)
        named = manifest.identifier_input
        inputs = services.get(manifest.add_device_service or "", [])
        if named is not None and named not in {one.id.rpartition(".")[2] for one in inputs}:
            raise InvalidInput(f"the add service has no input {named!r}", field="identifier_input")
        await self._store.save(manifest)
        self._known.put(who, manifest)
        return Acknowledged()

    async def list_all(self, _: GetIntegrations) -> KnownIntegrations:
        """Return every integration, including hidden and stopped ones."""
        return KnownIntegrations(await self._store.list_all())

    async def list_visible(self) -> list[Manifest]:
        """Return the integrations that users may see: running, and not hidden."""
        known = await self._store.list_all()
        return [one.manifest for one in known if one.alive and not one.manifest.hidden]
