"""Announced manifests in MongoDB, so that every replica knows the same.

`integrations`: `{_id, manifest (JSON), announcedAt}`; MongoDB's clock alone tells the age.
"""

import msgspec

from libs.common.contracts.integrations import LEASE, Integration, Manifest
from libs.common.store.mongo import Database


class IntegrationStore:
    """The collection `integrations`."""

    def __init__(self, database: Database) -> None:
        self._integrations = database["integrations"]

    async def announced(self, manifest: Manifest) -> None:
        """Keep a manifest, and that it was announced just now."""
        text = msgspec.json.encode(manifest).decode()
        await self._integrations.update_one(
            {"_id": manifest.id},
            [{"$set": {"manifest": {"$literal": text}, "announcedAt": "$$NOW"}}],
            upsert=True,
        )

    async def all(self) -> list[Integration]:
        """Every integration that was ever announced, by id, and whether it is there now."""
        oldest = {"$subtract": ["$$NOW", int(LEASE * 1000)]}
        found = await self._integrations.aggregate(
            [
                {"$set": {"alive": {"$gt": ["$announcedAt", oldest]}}},
                {"$sort": {"_id": 1}},
            ]
        )
        return [
            Integration(
                manifest=msgspec.json.decode(document["manifest"], type=Manifest),
                alive=document["alive"],
            )
            async for document in found
        ]
