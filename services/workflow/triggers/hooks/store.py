"""Hooks in MongoDB: `hooks`, one for each flow that runs and begins with one.

`{_id: flow id, tenant, token, flow}`: `token` is a SHA-256 of what the address ends with, unique
over all tenants; `flow` is the JSON of `Deployed`, without the token.
"""

import msgspec
from pymongo.errors import DuplicateKeyError

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, Session
from services.workflow.runs.records import Deployed

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

    async def put(self, flow: Deployed, digest: bytes, session: Session) -> None:
        """Set the hook of a flow; raise `Conflict` when another flow has the token."""
        key = {"_id": flow.flow_id, "tenant": flow.tenant}
        fields = {"token": digest, "flow": msgspec.json.encode(flow)}
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
