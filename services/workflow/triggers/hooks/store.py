"""Hooks in MongoDB: `hooks`, one for each flow that runs and begins with a request.

`{_id: flow id, tenant, token, method, shape, flow}`: `token` is a SHA-256 of what the open address
ends with, unique over all tenants, and random bytes where there is none; `method` and `shape` are
those of the address for who logs in, when there is one; `flow` is the JSON of `Deployed`, without
the token.
"""

from collections.abc import Sequence

import msgspec
from pymongo.errors import DuplicateKeyError

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, Document, Session
from services.workflow.runs.records import Deployed

MOST_OF_ONE = 20
"""Flows that one address may begin."""

_decode = msgspec.json.Decoder(Deployed).decode


class HookStore:
    """Reads and writes hooks."""

    def __init__(self, database: Database) -> None:
        self._hooks = database["hooks"]

    async def owner(self, digest: bytes) -> int | None:
        """The flow that a token begins."""
        found = await self._hooks.find_one({"token": digest}, {"_id": 1})
        return None if found is None else int(found["_id"])

    async def find(self, digest: bytes) -> Deployed | None:
        """The flow that a token begins, as it runs."""
        found = await self._hooks.find_one({"token": digest})
        return None if found is None else _decode(found["flow"])

    async def called(self, tenant: str, method: str, shapes: Sequence[str]) -> list[Deployed]:
        """The flows of a tenant whose address has one of the shapes, the oldest first."""
        query = {"tenant": tenant, "method": method, "shape": {"$in": list(shapes)}}
        found = self._hooks.find(query, sort=[("_id", 1)], limit=MOST_OF_ONE)
        return [_decode(one["flow"]) async for one in found]

    async def any_address(self, tenant: str) -> bool:
        """Whether any flow of a tenant has an address for those who log in."""
        query = {"tenant": tenant, "method": {"$exists": True}}
        return await self._hooks.find_one(query, {"_id": 1}) is not None

    async def others(self, tenant: str, flow_id: int, method: str, shape: str) -> int:
        """How many other flows have an address."""
        query = {"tenant": tenant, "method": method, "shape": shape, "_id": {"$ne": flow_id}}
        return await self._hooks.count_documents(query, limit=MOST_OF_ONE)

    async def put(
        self, flow: Deployed, digest: bytes, address: tuple[str, str] | None, session: Session
    ) -> None:
        """Set the hook of a flow, with method and shape of its address, if it has one.

        Raises `Conflict` when another flow has the token.
        """
        key = {"_id": flow.flow_id, "tenant": flow.tenant}
        fields: Document = {"token": digest, "flow": msgspec.json.encode(flow)}
        if address is not None:
            fields |= {"method": address[0], "shape": address[1]}
        try:
            await self._hooks.replace_one(key, key | fields, upsert=True, session=session)
        except DuplicateKeyError as error:
            raise Conflict("another flow has this token; make a new one", field="token") from error

    async def remove(self, tenant: str, flow_id: int, session: Session) -> None:
        """Drop the hook of a flow."""
        await self._hooks.delete_one({"_id": flow_id, "tenant": tenant}, session=session)


async def create_indexes(database: Database) -> None:
    """What lookups need."""
    await database["hooks"].create_index("token", unique=True)
    await create_address_index(database)


async def create_address_index(database: Database) -> None:
    """What lookups of addresses need."""
    await database["hooks"].create_index([("tenant", 1), ("method", 1), ("shape", 1)])
