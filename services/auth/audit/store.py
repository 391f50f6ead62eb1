"""The audit log in MongoDB; it can be added to and read, and nothing else.

`audit`: `{_id, tenant, at, actor: {kind, id, name}, action, object: {type, id, name}, address,
requestId, before, after}`, what is empty left out.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.common.clock import from_ms, to_ms
from libs.common.contracts.events import AccountChanged
from libs.common.store.mongo import Database, Session, containing
from services.auth.audit.schemas import AuditSearch, ShownActor, ShownEntry, ShownObject

_FILTERS = {
    "action": "action",
    "object_type": "object.type",
    "object_id": "object.id",
    "actor_id": "actor.id",
    "address": "address",
    "request_id": "requestId",
}
_COLUMNS = {
    "created_at": "at",
    "action": "action",
    "actor_name": "actor.name",
    "object_type": "object.type",
    "object_name": "object.name",
    "address": "address",
}
"""What can be sorted by."""
_NEWEST = (("at", -1), ("_id", -1))


class AuditStore:
    """The collection `audit`."""

    def __init__(self, database: Database) -> None:
        self._audit = database["audit"]

    async def add(self, events: Sequence[AccountChanged], session: Session) -> None:
        """Write entries in the caller's transaction."""
        if events:
            await self._audit.insert_many(list(map(_document, events)), session=session)

    async def search(self, tenant: str, wanted: AuditSearch) -> tuple[list[ShownEntry], int]:
        """One page of a tenant's entries, and how many there are that fit."""
        query = _query(tenant, wanted)
        found = self._audit.find(query).sort(wanted.order(_COLUMNS, _NEWEST))
        skip = (wanted.number - 1) * wanted.size
        rows = [_entry(document) async for document in found.skip(skip).limit(wanted.size)]
        return rows, await self._audit.count_documents(query)


def _query(tenant: str, wanted: AuditSearch) -> dict[str, Any]:
    query: dict[str, Any] = {"tenant": tenant}
    for name, stored in _FILTERS.items():
        value = getattr(wanted, name)
        if value not in {None, ""}:
            query[stored] = str(value)
    bounds = {"$gte": wanted.start_timestamp, "$lte": wanted.end_timestamp}
    at = {name: from_ms(value) for name, value in bounds.items() if value is not None}
    if at:
        query["at"] = at
    if wanted.keyword:
        part = containing(wanted.keyword)
        query["$or"] = [{"actor.name": part}, {"object.name": part}]
    return query


def _document(event: AccountChanged) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(event)
    document["_id"] = document.pop("eventId")
    document["at"] = from_ms(document.pop("createdAt"))
    return document


def _entry(document: dict[str, Any]) -> ShownEntry:
    return ShownEntry(
        id=document["_id"],
        created_at=to_ms(document["at"]),
        actor=msgspec.convert(document["actor"], ShownActor),
        action=document["action"],
        object=msgspec.convert(document["object"], ShownObject),
        address=document.get("address", ""),
        request_id=document.get("requestId", ""),
        before=document.get("before"),
        after=document.get("after"),
    )
