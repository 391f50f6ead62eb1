"""Secrets of flows in MongoDB: `flow_secrets`.

`{_id: mark, tenant, sealed, flows}`: `flows` are those with a version that has the mark; the
secret goes with the last of them.
"""

from collections.abc import Collection, Mapping, Sequence

from libs.common.store.mongo import Database, Session


class SecretStore:
    """Reads and writes sealed secrets."""

    def __init__(self, database: Database) -> None:
        self._secrets = database["flow_secrets"]

    async def sealed(self, tenant: str, marks: Collection[str]) -> dict[str, str]:
        """Sealed secrets by mark; what is unknown is missing."""
        found = self._secrets.find({"_id": {"$in": list(marks)}, "tenant": tenant})
        return {row["_id"]: row["sealed"] async for row in found}

    async def keep(
        self,
        tenant: str,
        flow_id: int,
        given: Mapping[str, str],
        marks: Collection[str],
        session: Session,
    ) -> None:
        """Add secrets that are new, and note that a flow has them and the other marks."""
        also = {"$addToSet": {"flows": flow_id}}
        for mark, sealed in given.items():
            key = {"_id": mark, "tenant": tenant}
            change = {**also, "$setOnInsert": {"sealed": sealed}}
            await self._secrets.update_one(key, change, upsert=True, session=session)
        others = [one for one in marks if one not in given]
        if others:
            query = {"_id": {"$in": others}, "tenant": tenant}
            await self._secrets.update_many(query, also, session=session)

    async def keep_only(
        self, tenant: str, flow_id: int, marks: Collection[str], session: Session
    ) -> None:
        """A flow has no other marks any more: delete what no other flow has either."""
        query = {"tenant": tenant, "flows": flow_id, "_id": {"$nin": list(marks)}}
        await self._secrets.update_many(query, {"$pull": {"flows": flow_id}}, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """Flows are deleted: delete what no other one has."""
        query = {"tenant": tenant, "flows": {"$in": list(flow_ids)}}
        change = {"$pull": {"flows": {"$in": list(flow_ids)}}}
        await self._secrets.update_many(query, change, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["flow_secrets"].create_index([("tenant", 1), ("flows", 1)])
